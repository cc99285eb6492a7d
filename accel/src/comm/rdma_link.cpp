// SPDX-License-Identifier: Apache-2.0
#include "rdma_link.hpp"

#include <algorithm>
#include <cstring>

namespace paceline::comm {
namespace {

// A free slot here, and one there.
bool has_room(const RailQueue& rail) {
  return rail.sent() - rail.delivered() < kSlots && rail.sent() - rail.arrived() < kSlots;
}

// Until `ready`, which is asked first: what has arrived is good, whatever has become of the rail since.
template <typename Ready>
bool await(RailQueue& rail, std::uint32_t peer, Watch& watch, const Ready& ready) {
  rail.look();
  while (!ready()) {
    if (watch.failed()) return false;
    if (!rail.broken().empty()) {
      watch.broken(peer, rail.broken());
      return false;
    }
    if (Clock::now() >= watch.deadline()) {
      watch.late(peer);
      return false;
    }
    rail.wait(watch.deadline(), watch.abort_fd());
  }
  return !watch.failed();
}

}  // namespace

RdmaSender::~RdmaSender() {
  // A queue pair that ends takes with it what it still has to send.
  for (const auto& rail : rails_) {
    std::uint64_t delivered = 0;
    auto until = Clock::now() + linger_;
    while (rail->delivered() < rail->sent() && rail->broken().empty() && !watch_.failed() && Clock::now() < until) {
      rail->wait(until, watch_.abort_fd());
      if (rail->delivered() > delivered) until = Clock::now() + linger_;
      delivered = rail->delivered();
    }
  }
}

bool RdmaSender::send(const std::byte* data, std::size_t size) {
  while (size > 0) {
    RailQueue& rail = *rails_[next_];
    // Of a broken rail room says nothing: what could not be posted would be missing in the stream.
    if (!await(rail, peer_, watch_, [&] { return rail.broken().empty() && has_room(rail); })) return false;
    const std::size_t some = std::min(size, kSlotBytes);
    std::memcpy(rail.slot(rail.sent()), data, some);
    rail.send(some);
    data += some;
    size -= some;
    next_ = (next_ + 1) % rails_.size();
  }
  return !watch_.failed();
}

RdmaReceiver::RdmaReceiver(Rails rails, std::uint32_t peer, Watch& watch)
    : rails_(std::move(rails)), peer_(peer), watch_(watch) {
  // What came while both ends tried them.
  for (const auto& rail : rails_) taken_.push_back(rail->arrived());
}

// A sender that needs no more slots may have gone: then there is nobody to tell, and nothing wrong with what it sent.
bool RdmaReceiver::give_back(RailQueue& rail) {
  rail.receive_again();
  const auto tells = [&] { return !rail.broken().empty() || rail.sent() - rail.delivered() < kSlots; };
  if (!await(rail, peer_, watch_, tells)) return false;
  if (rail.broken().empty()) rail.send(0);
  return true;
}

bool RdmaReceiver::receive(std::byte* data, std::size_t size) {
  while (size > 0) {
    RailQueue& rail = *rails_[next_];
    std::uint64_t& taken = taken_[next_];
    if (!await(rail, peer_, watch_, [&] { return rail.arrived() > taken; })) return false;
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
