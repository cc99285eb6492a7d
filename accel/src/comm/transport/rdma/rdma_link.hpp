// SPDX-License-Identifier: Apache-2.0
// A link over queue pairs, one on each NIC. It cuts the stream into messages of at most one slot.
// Message i goes over NIC i mod the number of NICs, so nothing is added on the wire. The sender
// sends a message only when the receiver has a free slot, which an empty message back announces. So
// no NIC ever finds its peer unready, and the bytes under way are bounded.
//
// Ownership: of the queue pairs. Threads: one at a time. Blocking: as NicQueue::wait. Failure: as
// link.hpp says; a broken NIC is reported to the failure detector.
#pragma once

#include <memory>
#include <vector>

#include "comm/failure/failure_detector.hpp"
#include "comm/transport/link.hpp"
#include "comm/transport/rdma/rdma.hpp"

namespace paceline::comm {

using NicQueues = std::vector<std::unique_ptr<NicQueue>>;
// Whether a link serves calls of all ranks or of two. With two, no third rank judges a peer that
// has said goodbye.
enum class Between : std::uint8_t { kAll, kTwo };

class RdmaSender final : public SendLink {
 public:
  RdmaSender(NicQueues nics, Between between, std::uint32_t peer, FailureDetector& detector)
      : nics_(std::move(nics)), between_(between), peer_(peer), detector_(detector) {}
  // Waits until all is delivered. A queue pair that ends drops what it has not sent, and one that
  // fails reports it only when asked.
  bool flush() override;
  bool send(const std::byte* data, std::size_t size) override;
  std::uint32_t peer() const override { return peer_; }
  std::size_t buffer_bytes() const override { return kSlots / 2 * nics_.front()->slot_bytes(); }

 private:
  NicQueues nics_;
  Between between_;
  std::size_t next_ = 0;
  std::uint32_t peer_;
  FailureDetector& detector_;
};

class RdmaReceiver final : public ReceiveLink {
 public:
  RdmaReceiver(NicQueues nics, Between between, std::uint32_t peer, FailureDetector& detector);
  bool receive(std::byte* data, std::size_t size) override;
  std::uint32_t peer() const override { return peer_; }

 private:
  bool give_back(NicQueue& nic);

  NicQueues nics_;
  Between between_;
  std::vector<std::uint64_t> taken_;  // messages taken from each NIC
  std::size_t next_ = 0;
  std::size_t offset_ = 0;  // into the next message
  std::uint32_t peer_;
  FailureDetector& detector_;
};

}  // namespace paceline::comm
