// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/rdma/rdma_link.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace paceline::comm {
namespace {

// Whether a slot is free at this end and at the peer's.
bool has_room(const NicQueue& nic) {
  return nic.sent() - nic.delivered() < kSlots && nic.sent() - nic.arrived() < kSlots;
}

// how often to check for a peer that has left, since nothing announces that here
constexpr std::chrono::milliseconds kLookAgain{500};

// Waits until `ready`. It checks `ready` before the NIC's state: data that has arrived is good even
// if the NIC has failed since.
template <typename Ready>
bool await(NicQueue& nic, Between between, std::uint32_t peer, FailureDetector& detector,
           const Ready& ready) {
  for (bool left = false;;) {
    nic.look();
    if (ready() || detector.failed()) return !detector.failed();
    if (left) {
      detector.fail(static_cast<int>(peer), "rank " + std::to_string(peer) +
                                                " has left the communicator in the middle of it");
    } else if (nic.broken_here()) {
      detector.give_up(nic.broken());
    } else if (!nic.broken().empty()) {
      detector.connection_broke(peer, nic.broken());
    } else if (const auto waiting = detector.may_wait(peer)) {
      // Read whether the peer has left before the next look: what it sent before it left has been
      // delivered, and completes within that time.
      left = between == Between::kTwo && detector.has_left(peer);
      const auto soon = between == Between::kTwo ? Clock::now() + kLookAgain : detector.deadline();
      nic.wait(std::min(detector.deadline(), soon), detector.abort_fd());
    }
  }
}

}  // namespace

bool RdmaSender::flush() {
  for (const auto& nic : nics_) {
    // A peer that has left has received all that it waited for.
    const auto done = [&] {
      return (nic->broken().empty() && nic->delivered() == nic->sent()) ||
             detector_.has_left(peer_);
    };
    if (!await(*nic, Between::kTwo, peer_, detector_, done)) return false;
  }
  return true;
}

bool RdmaSender::send(const std::byte* data, std::size_t size) {
  while (size > 0) {
    NicQueue& nic = *nics_[next_];
    // Check that the NIC works: a broken one may show room, and unsent data would be missing in the
    // stream.
    if (!await(nic, between_, peer_, detector_,
               [&] { return nic.broken().empty() && has_room(nic); }))
      return false;
    const std::size_t some = std::min(size, nic.slot_bytes());
    std::memcpy(nic.slot(nic.sent()), data, some);
    nic.send(some);
    data += some;
    size -= some;
    next_ = (next_ + 1) % nics_.size();
  }
  return !detector_.failed();
}

RdmaReceiver::RdmaReceiver(NicQueues nics, Between between, std::uint32_t peer,
                           FailureDetector& detector)
    : nics_(std::move(nics)), between_(between), peer_(peer), detector_(detector) {
  // Skip the messages that both ends sent while they tried the link.
  for (const auto& nic : nics_) taken_.push_back(nic->arrived());
}

// A sender that needs no more slots may have left. Then the credit cannot be sent, but the data
// that has arrived is good.
bool RdmaReceiver::give_back(NicQueue& nic) {
  nic.receive_again();
  const auto tells = [&] { return !nic.broken().empty() || nic.sent() - nic.delivered() < kSlots; };
  if (!await(nic, between_, peer_, detector_, tells)) return false;
  if (nic.broken().empty()) nic.send(0);
  return true;
}

bool RdmaReceiver::receive(std::byte* data, std::size_t size) {
  while (size > 0) {
    NicQueue& nic = *nics_[next_];
    std::uint64_t& taken = taken_[next_];
    if (!await(nic, between_, peer_, detector_, [&] { return nic.arrived() > taken; }))
      return false;
    const std::size_t length = nic.length(taken);
    const std::size_t some = std::min(size, length - offset_);
    std::memcpy(data, nic.slot(taken) + offset_, some);
    data += some;
    size -= some;
    offset_ += some;
    if (offset_ < length) continue;
    offset_ = 0;
    ++taken;
    next_ = (next_ + 1) % nics_.size();
    if (!give_back(nic)) return false;
  }
  return !detector_.failed();
}

}  // namespace paceline::comm
