// SPDX-License-Identifier: Apache-2.0
// A link over queue pairs, one on each rail: the stream is cut into messages of at most a slot, and
// message i goes by rail i mod rails, so both ends know where each belongs and nothing is added on
// the wire. A message is sent when the receiver has a slot for it, of which an empty message back
// tells: so no rail ever finds its peer unready, and what is under way is bounded.
//
// Ownership: of the queue pairs. Threads: one at a time. Blocking: as RailQueue::wait. Failure: as
// link.hpp; a broken rail is told to the watch.
#pragma once

#include <memory>
#include <vector>

#include "comm/failure/failure_detector.hpp"
#include "comm/transport/link.hpp"
#include "comm/transport/rdma/rdma.hpp"

namespace paceline::comm {

using Rails = std::vector<std::unique_ptr<RailQueue>>;
// Whose call a link serves. Of two alone, nobody else judges a peer that has said goodbye.
enum class Between : std::uint8_t { kAll, kTwo };

class RdmaSender final : public SendLink {
 public:
  RdmaSender(Rails rails, Between between, std::uint32_t peer, Watch& watch)
      : rails_(std::move(rails)), between_(between), peer_(peer), watch_(watch) {}
  // Until it is delivered: a queue pair that ends takes with it what it has not sent, and one that
  // fails tells nobody but who asks it.
  bool flush() override;
  bool send(const std::byte* data, std::size_t size) override;
  std::uint32_t peer() const override { return peer_; }
  std::size_t holds() const override { return kSlots / 2 * rails_.front()->slot_bytes(); }

 private:
  Rails rails_;
  Between between_;
  std::size_t next_ = 0;
  std::uint32_t peer_;
  Watch& watch_;
};

class RdmaReceiver final : public ReceiveLink {
 public:
  RdmaReceiver(Rails rails, Between between, std::uint32_t peer, Watch& watch);
  bool receive(std::byte* data, std::size_t size) override;
  std::uint32_t peer() const override { return peer_; }

 private:
  bool give_back(RailQueue& rail);

  Rails rails_;
  Between between_;
  std::vector<std::uint64_t> taken_;  // messages, of each rail
  std::size_t next_ = 0;
  std::size_t offset_ = 0;  // into the next message
  std::uint32_t peer_;
  Watch& watch_;
};

}  // namespace paceline::comm
