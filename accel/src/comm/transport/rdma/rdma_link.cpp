// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/rdma/rdma_link.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace paceline::comm {
namespace {

// A free slot here, and one there.
bool has_room(const NicQueue& nic) {
  return nic.sent() - nic.delivered() < kSlots && nic.sent() - nic.arrived() < kSlots;
}

// for a peer that has left, of which nothing comes in here
constexpr std::chrono::milliseconds kLookAgain{500};

// Until `ready`, which is asked first: what has arrived is good, whatever has become of the nic
// since.
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
    } else if (detector.may_wait(peer)) {
      // Before another look: what it has sent before it left has been delivered, and comes up
      // within that time.
      left = between == Between::kTwo && detector.has_left(peer);
      const auto soon = between == Between::kTwo ? Clock::now() + kLookAgain : detector.deadline();
      nic.wait(std::min(detector.deadline(), soon), detector.abort_fd());
    }
  }
}

}  // namespace

bool RdmaSender::flush() {
  for (const auto& nic : nics_) {
    // Who has left has got all that it waited for.
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
    // Of a broken nic room says nothing: what could not be posted would be missing in the stream.
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
  // What came while both ends tried them.
  for (const auto& nic : nics_) taken_.push_back(nic->arrived());
}

// A sender that needs no more slots may have gone: then there is nobody to tell, and nothing wrong
// with what it sent.
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
