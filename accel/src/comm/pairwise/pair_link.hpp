// SPDX-License-Identifier: Apache-2.0
// A link between two ranks of different hosts that may have RDMA. The two ends agree on RDMA when
// they first use the link, so a rank never waits for a peer that it does not talk to. It uses one
// NIC, since there are many pairs. Without RDMA it uses the TCP connection.
//
// Ownership: of the connection. Threads: one at a time. Blocking: as rdma_agreement.hpp, then as
// its transport. Failure: as link.hpp says.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/bootstrap/peer_info.hpp"
#include "comm/bootstrap/rdma_agreement.hpp"
#include "comm/plan/plan.hpp"
#include "comm/transport/link.hpp"

namespace paceline::comm {

struct PairTerms {
  std::uint32_t rank;
  std::uint32_t peer;
  const Rdma* rdma;  // both ranks' peer infos list RDMA devices
  std::size_t nic;   // the same number on both ranks
  Transport transport;
  std::function<void(const std::string& why)> by_tcp;
};

class PairSender final : public SendLink {
 public:
  PairSender(base::Fd connection, PairTerms terms, FailureDetector& detector)
      : connection_(std::move(connection)), terms_(std::move(terms)), detector_(detector) {}
  bool send(const std::byte* data, std::size_t size) override;
  std::uint32_t peer() const override { return terms_.peer; }
  std::size_t buffer_bytes() const override { return link_ == nullptr ? 0 : link_->buffer_bytes(); }
  bool flush() override { return link_ == nullptr || link_->flush(); }

 private:
  base::Fd connection_;  // stays open, because a forked child closes it by its number
  PairTerms terms_;
  FailureDetector& detector_;
  std::unique_ptr<SendLink> link_;
};

class PairReceiver final : public ReceiveLink {
 public:
  PairReceiver(base::Fd connection, PairTerms terms, FailureDetector& detector)
      : connection_(std::move(connection)), terms_(std::move(terms)), detector_(detector) {}
  bool receive(std::byte* data, std::size_t size) override;
  std::uint32_t peer() const override { return terms_.peer; }

 private:
  base::Fd connection_;
  PairTerms terms_;
  FailureDetector& detector_;
  std::unique_ptr<ReceiveLink> link_;
};

}  // namespace paceline::comm
