// SPDX-License-Identifier: Apache-2.0
#include "comm/pairwise/pair_link.hpp"

#include <optional>

#include "comm/transport/tcp/tcp_link.hpp"

namespace paceline::comm {
namespace {

// nullopt if the failure detector has the error. Without NICs the pair uses TCP.
std::optional<NicQueues> settle_pair(const base::Fd& connection, const PairTerms& terms, bool sends,
                                     FailureDetector& detector) {
  const Attempt wanted{
      .rdma = *terms.rdma, .nics = {terms.nic}, .slot_bytes = kPairSlotBytes, .sends = sends};
  const FailureDetector::Wait waiting(detector, terms.peer);
  auto agreed = agree(connection, terms.peer, wanted, detector, detector.deadline());
  if (!agreed) {
    if (Clock::now() >= detector.deadline()) detector.blame_late(terms.peer);
    detector.fail(agreed.error().rank, agreed.error().text);
    return std::nullopt;
  }
  if (!agreed->refusal.empty() && terms.transport == Transport::kRdma) {
    detector.fail(static_cast<int>(terms.peer),
                  "plan: transport=rdma: rank " + std::to_string(terms.rank) + " and rank " +
                      std::to_string(terms.peer) + " have no way by RDMA: " + agreed->refusal +
                      "; or use transport=auto");
    return std::nullopt;
  }
  if (!agreed->refusal.empty()) terms.by_tcp(agreed->refusal);
  return std::move(agreed->nics);
}

std::vector<base::Fd> only(base::Fd connection) {
  std::vector<base::Fd> flows;
  flows.push_back(std::move(connection));
  return flows;
}

}  // namespace

bool PairSender::send(const std::byte* data, std::size_t size) {
  if (link_ == nullptr) {
    auto nics = settle_pair(connection_, terms_, true, detector_);
    if (!nics) return false;
    if (nics->empty()) {
      link_ = std::make_unique<TcpSender>(only(std::move(connection_)), terms_.peer, detector_);
    } else {
      link_ = std::make_unique<RdmaSender>(std::move(*nics), Between::kTwo, terms_.peer, detector_);
    }
  }
  return link_->send(data, size);
}

bool PairReceiver::receive(std::byte* data, std::size_t size) {
  if (link_ == nullptr) {
    auto nics = settle_pair(connection_, terms_, false, detector_);
    if (!nics) return false;
    if (nics->empty()) {
      link_ = std::make_unique<TcpReceiver>(only(std::move(connection_)), terms_.peer, detector_);
    } else {
      link_ =
          std::make_unique<RdmaReceiver>(std::move(*nics), Between::kTwo, terms_.peer, detector_);
    }
  }
  return link_->receive(data, size);
}

}  // namespace paceline::comm
