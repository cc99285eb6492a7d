// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/rdma/rdma_link.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace paceline::comm {
namespace {

// A free slot here, and one there.
bool has_room(const RailQueue& rail) {
  return rail.sent() - rail.delivered() < kSlots && rail.sent() - rail.arrived() < kSlots;
}

// for a peer that has left, of which nothing comes in here
constexpr std::chrono::milliseconds kLookAgain{500};

// Until `ready`, which is asked first: what has arrived is good, whatever has become of the rail
// since.
template <typename Ready>
bool await(RailQueue& rail, Between between, std::uint32_t peer, Watch& watch, const Ready& ready) {
  for (bool left = false;;) {
    rail.look();
    if (ready() || watch.failed()) return !watch.failed();
    if (left) {
      watch.fail(static_cast<int>(peer),
                 "rank " + std::to_string(peer) + " has left the communicator in the middle of it");
    } else if (rail.broken_here()) {
      watch.give_up(rail.broken());
    } else if (!rail.broken().empty()) {
      watch.broken(peer, rail.broken());
    } else if (watch.may_wait(peer)) {
      // Before another look: what it has sent before it left has been delivered, and comes up
      // within that time.
      left = between == Between::kTwo && watch.left(peer);
      const auto soon = between == Between::kTwo ? Clock::now() + kLookAgain : watch.deadline();
      rail.wait(std::min(watch.deadline(), soon), watch.abort_fd());
    }
  }
}

}  // namespace

bool RdmaSender::flush() {
  for (const auto& rail : rails_) {
    // Who has left has got all that it waited for.
    const auto done = [&] {
      return (rail->broken().empty() && rail->delivered() == rail->sent()) || watch_.left(peer_);
    };
    if (!await(*rail, Between::kTwo, peer_, watch_, done)) return false;
  }
  return true;
}

bool RdmaSender::send(const std::byte* data, std::size_t size) {
  while (size > 0) {
    RailQueue& rail = *rails_[next_];
    // Of a broken rail room says nothing: what could not be posted would be missing in the stream.
    if (!await(rail, between_, peer_, watch_,
               [&] { return rail.broken().empty() && has_room(rail); }))
      return false;
    const std::size_t some = std::min(size, rail.slot_bytes());
    std::memcpy(rail.slot(rail.sent()), data, some);
    rail.send(some);
    data += some;
    size -= some;
    next_ = (next_ + 1) % rails_.size();
  }
  return !watch_.failed();
}

RdmaReceiver::RdmaReceiver(Rails rails, Between between, std::uint32_t peer, Watch& watch)
    : rails_(std::move(rails)), between_(between), peer_(peer), watch_(watch) {
  // What came while both ends tried them.
  for (const auto& rail : rails_) taken_.push_back(rail->arrived());
}

// A sender that needs no more slots may have gone: then there is nobody to tell, and nothing wrong
// with what it sent.
bool RdmaReceiver::give_back(RailQueue& rail) {
  rail.receive_again();
  const auto tells = [&] {
    return !rail.broken().empty() || rail.sent() - rail.delivered() < kSlots;
  };
  if (!await(rail, between_, peer_, watch_, tells)) return false;
  if (rail.broken().empty()) rail.send(0);
  return true;
}

bool RdmaReceiver::receive(std::byte* data, std::size_t size) {
  while (size > 0) {
    RailQueue& rail = *rails_[next_];
    std::uint64_t& taken = taken_[next_];
    if (!await(rail, between_, peer_, watch_, [&] { return rail.arrived() > taken; })) return false;
    const std::size_t length = rail.length(taken);
    const std::size_t some = std::min(size, length - offset_);
    std::memcpy(data, rail.slot(taken) + offset_, some);
    data += some;
    size -= some;
    offset_ += some;
    if (offset_ < length) continue;
    offset_ = 0;
    ++taken;
    next_ = (next_ + 1) % rails_.size();
    if (!give_back(rail)) return false;
  }
  return !watch_.failed();
}

}  // namespace paceline::comm
