// SPDX-License-Identifier: Apache-2.0
#include "fake_device.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <string>

namespace paceline::fake_verbs {
namespace {

std::mutex settings_mutex;
std::map<std::string, int> settings{{"devices", 1}};
std::array<std::atomic<int>, kMostDevices> sent;

std::mutex regions_mutex;
std::map<std::uint32_t, Region> regions;  // by key

// Returns null unless the piece lies in the memory of its key.
const Region* region_of(const ibv_sge& piece) {
  const std::lock_guard lock(regions_mutex);
  const auto found = regions.find(piece.lkey);
  const bool fits = found != regions.end() && found->second.begin <= piece.addr &&
                    piece.addr + piece.length <= found->second.begin + found->second.bytes;
  return fits ? &found->second : nullptr;
}

}  // namespace

const Shared kShared;
std::array<Device, kMostDevices> devices;

int told(const char* name) {
  const std::lock_guard lock(settings_mutex);
  const auto found = settings.find(name);
  return found == settings.end() ? 0 : found->second;
}

void set(const char* name, int value) {
  const std::lock_guard lock(settings_mutex);
  settings[name] = value;
}

bool goes(const char* name) {
  errno = told(name);
  return errno == 0;
}

int messages_sent(std::size_t device) { return sent.at(device); }

ibv_mr* add_region(ibv_pd* domain, const Region& region) {
  const std::lock_guard lock(regions_mutex);
  static std::uint32_t next = 7;
  auto* const made = new ibv_mr{};
  made->context = domain->context;
  made->lkey = ++next;
  regions[next] = region;
  return made;
}

void remove_region(ibv_mr* region) {
  const std::lock_guard lock(regions_mutex);
  regions.erase(region->lkey);
  delete region;
}

namespace {

void ring(std::size_t end) {
  const std::uint64_t one = 1;
  const std::size_t channel = kShared.ends[end].channel;
  if (kShared.listeners[channel].armed.exchange(false) &&
      write(kShared.events[channel], &one, sizeof one) < 0)
    std::abort();
}

// Delivers a message to the peer before it returns.
ibv_wc_status deliver(const Pair& from, const char* data, std::uint32_t size) {
  const std::size_t device = static_cast<Context*>(from.context)->device;
  const int number = ++sent.at(device);
  if (told("lose") != 0) return IBV_WC_SUCCESS;
  if (told("break") != 0 && number > told("break")) return IBV_WC_RETRY_EXC_ERR;
  const std::size_t to = kShared.ends[from.end].peer - kFirstNumber;
  End& end = kShared.ends[to];
  if (!end.ready) return IBV_WC_RETRY_EXC_ERR;
  const std::uint64_t next = end.came;
  if (next == end.receives || next - end.taken == kMessages) return IBV_WC_RNR_RETRY_EXC_ERR;
  end.sizes[next % kMessages] = size;
  if (size > 0) std::memcpy(end.messages[next % kMessages].data(), data, size);
  end.came = next + 1;
  ring(to);
  return IBV_WC_SUCCESS;
}

using Pieces = std::vector<ibv_sge>;

ibv_wc carry(Pair& pair, std::uint64_t id, const Pieces& pieces) {
  ibv_wc done{};
  done.wr_id = id;
  done.qp_num = pair.qp_num;
  done.opcode = IBV_WC_SEND;
  std::string message;
  for (const ibv_sge& piece : pieces) {
    if (region_of(piece) == nullptr)
      done.status = IBV_WC_LOC_PROT_ERR;
    else
      message.append(reinterpret_cast<const char*>(piece.addr), piece.length);
  }
  done.byte_len = static_cast<std::uint32_t>(message.size());
  if (done.status == IBV_WC_SUCCESS) done.status = deliver(pair, message.data(), done.byte_len);
  return done;
}

void end(const Pair& pair, const ibv_wc& done) {
  auto& queue = *static_cast<Queue*>(pair.send_cq);
  const std::lock_guard lock(queue.mutex);
  queue.done.push_back(done);
}

// Completes the oldest posted receive with the oldest message that has arrived.
void receive(Pair& pair, ibv_wc& wc) {
  End& end = kShared.ends[pair.end];
  const std::uint32_t size = end.sizes[end.taken % kMessages];
  const ibv_sge place = pair.places.front();
  const char* const data = end.messages[end.taken % kMessages].data();
  wc = {};
  wc.wr_id = pair.receives.front().wr_id;
  wc.qp_num = pair.qp_num;
  wc.opcode = IBV_WC_RECV;
  wc.byte_len = size;
  const Region* const region = size == 0 ? nullptr : region_of(place);
  if (size > place.length) {
    wc.status = IBV_WC_LOC_LEN_ERR;
  } else if (size > 0 && region == nullptr) {
    wc.status = IBV_WC_LOC_PROT_ERR;
  } else if (size > 0) {
    std::memcpy(reinterpret_cast<void*>(place.addr), data, size);
  }
  pair.receives.pop_front();
  pair.places.pop_front();
  ++end.taken;
}

}  // namespace

int post_send(ibv_qp* qp, ibv_send_wr* request, ibv_send_wr** /*bad*/) {
  auto& pair = *static_cast<Pair*>(qp);
  const Pieces pieces(request->sg_list, request->sg_list + request->num_sge);
  pair.untold += pieces.empty() ? 0 : 1;
  end(pair, carry(pair, request->wr_id, pieces));
  ring(pair.end);
  return 0;
}

int post_recv(ibv_qp* qp, ibv_recv_wr* request, ibv_recv_wr** /*bad*/) {
  auto& pair = *static_cast<Pair*>(qp);
  if (!goes("post_recv")) return errno;
  pair.receives.push_back(*request);
  pair.places.push_back(request->num_sge > 0 ? *request->sg_list : ibv_sge{});
  ++kShared.ends[pair.end].receives;
  return 0;
}

int poll_cq(ibv_cq* cq, int most, ibv_wc* wc) {
  auto& queue = *static_cast<Queue*>(cq);
  int count = 0;
  const std::lock_guard lock(queue.mutex);
  for (; count < most && !queue.done.empty(); ++count) {
    wc[count] = queue.done.front();
    queue.done.pop_front();
    for (Pair* const pair : queue.pairs)
      if (pair->qp_num == wc[count].qp_num && wc[count].byte_len > 0) --pair->untold;
  }
  for (Pair* const pair : queue.pairs) {
    End& end = kShared.ends[pair->end];
    for (; count < most && end.taken < end.came; ++count) receive(*pair, wc[count]);
  }
  return count;
}

int req_notify_cq(ibv_cq* cq, int /*solicited*/) {
  kShared.listeners[static_cast<Channel*>(cq->channel)->number].armed = true;
  return 0;
}

}  // namespace paceline::fake_verbs
