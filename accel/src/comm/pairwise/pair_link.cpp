// SPDX-License-Identifier: Apache-2.0
#include "comm/pairwise/pair_link.hpp"

#include <optional>

#include "comm/transport/tcp/tcp_link.hpp"

namespace paceline::comm {
namespace {

// None where the watch knows why. No rails: by TCP.
std::optional<Rails> settle_pair(const base::Fd& connection, const PairTerms& terms, bool sends,
                                 Watch& watch) {
  const Attempt wanted{
      .rdma = *terms.rdma, .rails = {terms.rail}, .slot_bytes = kPairSlotBytes, .sends = sends};
  auto agreed = agree(connection, terms.peer, wanted, watch, watch.deadline());
  if (!agreed) {
    if (Clock::now() >= watch.deadline()) watch.late(terms.peer);
    watch.fail(agreed.error().rank, agreed.error().text);
    return std::nullopt;
  }
  if (!agreed->refusal.empty() && terms.transport == Transport::kRdma) {
    watch.fail(static_cast<int>(terms.peer),
               "plan: transport=rdma: rank " + std::to_string(terms.rank) + " and rank " +
                   std::to_string(terms.peer) + " have no way by RDMA: " + agreed->refusal +
                   "; or use transport=auto");
    return std::nullopt;
  }
  if (!agreed->refusal.empty()) terms.by_tcp(agreed->refusal);
  return std::move(agreed->rails);
}

std::vector<base::Fd> only(base::Fd connection) {
  std::vector<base::Fd> flows;
  flows.push_back(std::move(connection));
  return flows;
}

}  // namespace

bool PairSender::send(const std::byte* data, std::size_t size) {
  if (link_ == nullptr) {
    auto rails = settle_pair(connection_, terms_, true, watch_);
    if (!rails) return false;
    if (rails->empty()) {
      link_ = std::make_unique<TcpSender>(only(std::move(connection_)), terms_.peer, watch_);
    } else {
      link_ = std::make_unique<RdmaSender>(std::move(*rails), Between::kTwo, terms_.peer, watch_);
    }
  }
  return link_->send(data, size);
}

bool PairReceiver::receive(std::byte* data, std::size_t size) {
  if (link_ == nullptr) {
    auto rails = settle_pair(connection_, terms_, false, watch_);
    if (!rails) return false;
    if (rails->empty()) {
      link_ = std::make_unique<TcpReceiver>(only(std::move(connection_)), terms_.peer, watch_);
    } else {
      link_ = std::make_unique<RdmaReceiver>(std::move(*rails), Between::kTwo, terms_.peer, watch_);
    }
  }
  return link_->receive(data, size);
}

}  // namespace paceline::comm
