// SPDX-License-Identifier: Apache-2.0
// What goes from one rank to another, alone or all to all.
#include <atomic>
#include <cstring>

#include "base/doorbell.hpp"
#include "comm/communicator/communicator.hpp"

namespace paceline::comm {
namespace {

// Sent before the data: the sender's call and how much this rank gets.
struct Notice {
  Call call;
  std::uint64_t count = 0;
};
static_assert(sizeof(Notice) == 40);

// Waits for the sender on every way out, because the buffers belong to the caller.
struct Joined {
  explicit Joined(Worker& worker) : it(worker) {}
  Joined(const Joined&) = delete;
  Joined& operator=(const Joined&) = delete;
  ~Joined() { it.wait(); }
  Worker& it;
};

Channel channel_of(const Call& call) {
  return call.kind == Kind::kSend ? Channel::kPair : Channel::kTogether;
}

std::string elements(std::uint64_t count, Type type) {
  return std::to_string(count) + " " + name_of(type);
}

}  // namespace

bool Communicator::send_to(std::uint32_t peer, const Call& call, const std::byte* data,
                           std::uint64_t count) {
  SendLink* const link = direct_->to(peer, channel_of(call));
  if (link == nullptr) return false;
  const Notice notice{.call = call, .count = count};
  return link->send(reinterpret_cast<const std::byte*>(&notice), sizeof notice) &&
         (count == 0 || link->send(data, count * size_of(Type{call.type}))) && link->flush();
}

bool Communicator::receive_from(std::uint32_t peer, const Call& call, std::byte* data,
                                std::uint64_t count) {
  ReceiveLink* const link = direct_->from(peer, channel_of(call));
  if (link == nullptr) return false;
  Notice notice;
  if (!link->receive(reinterpret_cast<std::byte*>(&notice), sizeof notice)) return false;
  if (notice.call.kind != call.kind || notice.call.type != call.type || notice.count != count) {
    const bool known = is_type(notice.call.type);
    detector_->fail(
        static_cast<int>(peer),
        "rank " + std::to_string(peer) + " sends " +
            (known ? elements(notice.count, Type{notice.call.type}) : "something unknown") +
            " to rank " + std::to_string(topology_.rank) + ", which receives " +
            elements(count, Type{call.type}) +
            (notice.call.kind == call.kind ? "" : " by another call"));
    return false;
  }
  return count == 0 || link->receive(data, count * size_of(Type{call.type}));
}

bool Communicator::exchange_all(const Call& call, const Pieces<const std::byte>& in,
                                const Pieces<std::byte>& out) {
  const std::uint32_t n = ranks();
  const std::uint32_t rank = topology_.rank;
  const std::size_t size = size_of(Type{call.type});
  // In step s each rank sends to the rank s further on. Each rank receives from one peer at a time,
  // so a slow rank delays one peer only.
  std::atomic<std::uint32_t> sending{1};  // the sender's step; n at its end
  base::Doorbell stepped{};
  sender_.start([&] {
    for (std::uint32_t s = 1; s < n;) {
      const std::uint32_t peer = (rank + s) % n;
      const bool sent = send_to(peer, call, in.data + in.begins[peer] * size, in.counts[peer]);
      s = sent ? s + 1 : n;
      sending.store(s, std::memory_order_release);
      stepped.ring();
    }
  });
  const Joined joined(sender_);
  for (std::uint32_t s = 1; s < n; ++s) {
    const std::uint32_t peer = (rank + n - s) % n;
    if (!receive_from(peer, call, out.data + out.begins[peer] * size, out.counts[peer]))
      return false;
  }
  // Heartbeats name the rank that the sender sends to.
  for (;;) {
    const std::uint32_t seen = stepped.count.load(std::memory_order_acquire);
    const std::uint32_t s = sending.load(std::memory_order_acquire);
    if (s == n) return !detector_->failed();
    if (!detector_->wait(stepped, seen, (rank + s) % n)) return false;
  }
}

void Communicator::keep_own(const Pieces<const std::byte>& in, const Pieces<std::byte>& out,
                            Type type) const {
  const std::size_t size = size_of(type);
  const std::uint32_t rank = topology_.rank;
  if (in.counts[rank] > 0)
    std::memcpy(out.data + out.begins[rank] * size, in.data + in.begins[rank] * size,
                in.counts[rank] * size);
}

int Communicator::all_to_all(const Pieces<const std::byte>& in, const Pieces<std::byte>& out,
                             Type type, bool equal) {
  keep_own(in, out, type);
  // If the pieces differ, no rank knows all sizes, so each pair compares its own.
  return call_all(Kind::kAllToAll, equal ? in.counts[topology_.rank] : 1, type, equal ? 0 : 1,
                  [&](const Call& call) { return exchange_all(call, in, out); });
}

int Communicator::exchange(const Message<const std::byte>& out, const Message<std::byte>& in,
                           Type type) {
  queue_.drain();
  const std::lock_guard lock(mutex_);
  if (out.peer == topology_.rank) {
    if (out.count > 0) std::memmove(in.data, out.data, out.count * size_of(type));
    return PACELINE_OK;
  }
  const bool sends = out.peer != kNoRank;
  const bool receives = in.peer != kNoRank;
  std::string what;
  if (sends)
    what = "sending " + elements(out.count, type) + " from rank " + std::to_string(topology_.rank) +
           " to rank " + std::to_string(out.peer);
  if (receives)
    what += (sends ? ", and receiving " : "receiving ") + elements(in.count, type) + " from rank " +
            std::to_string(in.peer);
  if (!detector_->begin_pairwise(what, Clock::now() + options_.timeout)) return PACELINE_COMM_EPEER;
  const Call call{.sequence = 0,
                  .kind = Kind::kSend,
                  .type = static_cast<std::uint32_t>(type),
                  .count = 0,
                  .root = 0};
  if (sends) sender_.start([&] { send_to(out.peer, call, out.data, out.count); });
  {
    const Joined joined(sender_);
    if (receives) receive_from(in.peer, call, in.data, in.count);
  }
  return detector_->failed() ? PACELINE_COMM_EPEER : PACELINE_OK;
}

}  // namespace paceline::comm
