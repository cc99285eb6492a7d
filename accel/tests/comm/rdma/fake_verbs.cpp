// SPDX-License-Identifier: Apache-2.0
// A libibverbs.so.1 without a device: the functions that paceline uses, over memory that the
// process which loads it and all that it forks share. Tests load it before the library looks for
// the real one, and then find it under its name. Stricter than a device: a message that finds no
// receive posted is an error of its sender at once.
//
// fake_verbs_set(name, value) changes this process alone. "devices" (1): how many there are. "down"
// 1: their ports are. "ethernet" 1: their ports are of Ethernet. The name of a step sets the errno
// that it ends with: "open_device", "reg_mr", "create_qp", "rtr", "post_recv". "lose" 1: what is
// sent goes nowhere. "break" n: all messages after the nth fail. fake_verbs_sent(device) returns
// how many messages this process has sent. fake_verbs_dropped() returns how many messages with data
// all processes have posted on queue pairs that they ended before they were told what became of
// them: a device may drop those.
#include <infiniband/verbs.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr

#define FAKE extern "C" __attribute__((visibility("default")))

namespace {

constexpr std::size_t kEnds = 256;
constexpr std::size_t kChannels = 128;
constexpr std::size_t kMessages = 16;
constexpr std::size_t kMessageBytes = 128UL * 1024;
constexpr std::size_t kMostDevices = 4;
constexpr std::uint32_t kFirstNumber = 100;

// Of a queue pair: what comes in is written by its peer alone and read by its owner. Without locks,
// which a stopped rank would hold.
struct End {
  std::atomic<bool> used;
  std::atomic<bool> ready;  // to receive
  std::size_t channel;
  std::atomic<std::uint64_t> receives, came, taken;  // counts of those posted, and of messages
  std::uint32_t peer;                                // its owner's
  std::array<std::uint32_t, kMessages> sizes;
  std::array<std::array<char, kMessageBytes>, kMessages> messages;
};

struct Listener {
  std::atomic<bool> used;
  std::atomic<bool> armed;
};

template <typename T>
T* share(std::size_t count) {
  void* const memory = mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  return static_cast<T*>(memory);
}

struct Shared {
  Shared() {
    for (int& event : events) event = eventfd(0, EFD_NONBLOCK);
  }
  End* ends = share<End>(kEnds);
  Listener* listeners = share<Listener>(kChannels);
  std::atomic<int>* dropped = share<std::atomic<int>>(1);
  std::array<int, kChannels> events{};
};
const Shared kShared;

std::mutex settings_mutex;
std::map<std::string, int> settings{{"devices", 1}};
std::array<std::atomic<int>, kMostDevices> sent;

int told(const char* name) {
  const std::lock_guard lock(settings_mutex);
  const auto found = settings.find(name);
  return found == settings.end() ? 0 : found->second;
}

// Whether the test lets this step go on; else its errno.
bool goes(const char* name) {
  errno = told(name);
  return errno == 0;
}

struct Device : ibv_device {};
std::array<Device, kMostDevices> devices;

struct Context : ibv_context {
  std::size_t device;
};

struct Channel : ibv_comp_channel {
  std::size_t number;
};

struct Pair;
struct Queue : ibv_cq {
  std::vector<Pair*> pairs;
  std::mutex mutex;
  std::deque<ibv_wc> done;
};

struct Region {
  std::uint64_t begin;
  std::size_t bytes;
};
std::mutex regions_mutex;
std::map<std::uint32_t, Region> regions;  // by key

ibv_mr* add_region(ibv_pd* domain, const Region& region) {
  const std::lock_guard lock(regions_mutex);
  static std::uint32_t next = 7;
  auto* const made = new ibv_mr{};
  made->context = domain->context;
  made->lkey = ++next;
  regions[next] = region;
  return made;
}

// Null where the piece is not of the memory that its key is for.
const Region* region_of(const ibv_sge& piece) {
  const std::lock_guard lock(regions_mutex);
  const auto found = regions.find(piece.lkey);
  const bool fits = found != regions.end() && found->second.begin <= piece.addr &&
                    piece.addr + piece.length <= found->second.begin + found->second.bytes;
  return fits ? &found->second : nullptr;
}

struct Pair : ibv_qp {
  std::size_t end;
  std::deque<ibv_recv_wr> receives;
  std::deque<ibv_sge> places;
  int untold = 0;  // messages with data of whose end the owner has not been told
};

void ring(std::size_t end) {
  const std::uint64_t one = 1;
  const std::size_t channel = kShared.ends[end].channel;
  if (kShared.listeners[channel].armed.exchange(false) &&
      write(kShared.events[channel], &one, sizeof one) < 0)
    std::abort();
}

// What becomes of a message; it is there when this returns.
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

// What has come for a pair, into the memory that it was to come into.
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

}  // namespace

FAKE void fake_verbs_set(const char* name, int value) {
  const std::lock_guard lock(settings_mutex);
  settings[name] = value;
}

FAKE int fake_verbs_dropped() { return *kShared.dropped; }

FAKE int fake_verbs_sent(int device) { return sent.at(static_cast<std::size_t>(device)); }

FAKE ibv_device** ibv_get_device_list(int* count) {
  *count = told("devices");
  auto** const list = new ibv_device*[kMostDevices];
  for (std::size_t i = 0; i < kMostDevices; ++i) {
    list[i] = &devices.at(i);
    std::strcpy(devices.at(i).name, ("fake" + std::to_string(i)).c_str());
  }
  // In no order that anybody may count on.
  std::reverse(list, list + *count);
  return list;
}
FAKE void ibv_free_device_list(ibv_device** list) { delete[] list; }
FAKE const char* ibv_get_device_name(ibv_device* device) { return device->name; }
FAKE int ibv_fork_init() { return 0; }
FAKE ibv_context* ibv_open_device(ibv_device* device) {
  if (!goes("open_device")) return nullptr;
  auto* const context = new Context{};
  context->device = static_cast<std::size_t>(static_cast<Device*>(device) - devices.data());
  context->cmd_fd = context->async_fd = -1;
  context->ops.post_send = post_send;
  context->ops.post_recv = post_recv;
  context->ops.poll_cq = poll_cq;
  context->ops.req_notify_cq = req_notify_cq;
  return context;
}
FAKE int ibv_close_device(ibv_context* context) {
  delete static_cast<Context*>(context);
  return 0;
}
FAKE int ibv_query_device(ibv_context* /*context*/, ibv_device_attr* attributes) {
  *attributes = {};
  attributes->phys_port_cnt = 1;
  return 0;
}
FAKE int ibv_query_port(ibv_context* /*context*/, std::uint8_t /*port*/,
                        _compat_ibv_port_attr* place) {
  auto* const attributes = reinterpret_cast<ibv_port_attr*>(place);
  attributes->state = told("down") != 0 ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
  attributes->link_layer =
      told("ethernet") != 0 ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND;
  attributes->active_mtu = IBV_MTU_4096;
  attributes->lid = 1;
  return 0;
}
FAKE int ibv_query_gid(ibv_context* /*context*/, std::uint8_t /*port*/, int index, ibv_gid* gid) {
  std::memset(gid, index, sizeof *gid);
  return 0;
}
FAKE ibv_pd* ibv_alloc_pd(ibv_context* context) {
  auto* const domain = new ibv_pd{};
  domain->context = context;
  return domain;
}
FAKE int ibv_dealloc_pd(ibv_pd* domain) {
  delete domain;
  return 0;
}
FAKE ibv_mr* ibv_reg_mr(ibv_pd* domain, void* address, std::size_t length, int /*access*/) {
  if (!goes("reg_mr")) return nullptr;
  return add_region(domain, {reinterpret_cast<std::uintptr_t>(address), length});
}
FAKE int ibv_dereg_mr(ibv_mr* region) {
  const std::lock_guard lock(regions_mutex);
  regions.erase(region->lkey);
  delete region;
  return 0;
}
FAKE ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  for (std::size_t i = 0; i < kChannels; ++i) {
    if (kShared.listeners[i].used.exchange(true)) continue;
    kShared.listeners[i].armed = false;
    auto* const channel = new Channel{};
    channel->context = context;
    channel->fd = kShared.events[i];
    channel->number = i;
    return channel;
  }
  errno = ENOSPC;
  return nullptr;
}
FAKE int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  auto* const ours = static_cast<Channel*>(channel);
  std::uint64_t rings = 0;
  if (read(ours->fd, &rings, sizeof rings) < 0) errno = 0;
  kShared.listeners[ours->number].used = false;
  delete ours;
  return 0;
}
FAKE ibv_cq* ibv_create_cq(ibv_context* context, int /*entries*/, void* /*own*/,
                           ibv_comp_channel* channel, int /*vector*/) {
  auto* const queue = new Queue{};
  queue->context = context;
  queue->channel = channel;
  return queue;
}
FAKE int ibv_destroy_cq(ibv_cq* queue) {
  delete static_cast<Queue*>(queue);
  return 0;
}
FAKE int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** /*queue*/, void** /*own*/) {
  std::uint64_t rings = 0;
  return read(channel->fd, &rings, sizeof rings) == sizeof rings ? 0 : -1;
}
FAKE void ibv_ack_cq_events(ibv_cq* /*queue*/, unsigned /*count*/) {}
FAKE ibv_qp* ibv_create_qp(ibv_pd* domain, ibv_qp_init_attr* wanted) {
  if (!goes("create_qp")) return nullptr;
  auto* const queue = static_cast<Queue*>(wanted->send_cq);
  for (std::size_t i = 0; i < kEnds; ++i) {
    End& end = kShared.ends[i];
    if (end.used.exchange(true)) continue;
    end.ready = false;
    end.channel = static_cast<Channel*>(queue->channel)->number;
    end.receives = end.came = end.taken = 0;
    auto* const pair = new Pair{};
    pair->context = domain->context;
    pair->send_cq = pair->recv_cq = queue;
    pair->end = i;
    pair->qp_num = kFirstNumber + static_cast<std::uint32_t>(i);
    queue->pairs.push_back(pair);
    return pair;
  }
  errno = ENOSPC;
  return nullptr;
}
FAKE int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int /*mask*/) {
  End& end = kShared.ends[static_cast<Pair*>(qp)->end];
  if (attributes->qp_state == IBV_QPS_RTR) {
    if (!goes("rtr")) return errno;
    end.peer = attributes->dest_qp_num;
    end.ready = true;
  }
  return 0;
}
FAKE int ibv_destroy_qp(ibv_qp* qp) {
  auto* const pair = static_cast<Pair*>(qp);
  kShared.ends[pair->end].ready = false;
  kShared.ends[pair->end].used = false;
  *kShared.dropped += pair->untold;
  std::erase(static_cast<Queue*>(pair->send_cq)->pairs, pair);
  delete pair;
  return 0;
}
FAKE const char* ibv_wc_status_str(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_RNR_RETRY_EXC_ERR: return "RNR retry counter exceeded";
    case IBV_WC_LOC_LEN_ERR: return "local length error";
    case IBV_WC_LOC_PROT_ERR: return "local protection error";
    default: return "transport retry counter exceeded";
  }
}
