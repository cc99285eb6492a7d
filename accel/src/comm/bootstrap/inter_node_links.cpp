// SPDX-License-Identifier: Apache-2.0
#include "comm/bootstrap/inter_node_links.hpp"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <thread>
#include <utility>

#include "comm/transport/tcp/tcp_link.hpp"

namespace paceline::comm {

std::string why_no_rdma(const std::vector<Card>& cards, std::uint32_t rank, std::uint32_t peer) {
  if (cards[rank].rails == 0) return cards[rank].no_rdma;
  if (cards[peer].rails == 0) return rank_name(peer) + ": " + cards[peer].no_rdma;
  return cards[rank].host == cards[peer].host ? "both are on one host" : "";
}

std::unique_ptr<Rdma> open_for_card(Transport transport, Card& card) {
  if (transport == Transport::kTcp) {
    card.no_rdma = "transport=tcp";
    return nullptr;
  }
  const auto settings =
      read_rdma_settings([](const char* name) -> const char* { return std::getenv(name); });
  auto rdma = settings ? open_rdma(*settings) : std::unexpected(settings.error());
  if (!rdma) {
    card.no_rdma = rdma.error();
    // It goes into a text of lines.
    std::ranges::replace(card.no_rdma, '\n', ' ');
    return nullptr;
  }
  card.rails = static_cast<std::uint32_t>((*rdma)->rails());
  return std::move(*rdma);
}

std::expected<void, Error> check_transport(Transport transport, const std::vector<Card>& cards) {
  const auto elsewhere = [&](const Card& card) { return card.host != cards.front().host; };
  if (transport != Transport::kRdma || std::ranges::none_of(cards, elsewhere)) return {};
  const auto lacks = std::ranges::find(cards, 0U, &Card::rails);
  if (lacks == cards.end()) return {};
  const auto rank = static_cast<std::uint32_t>(lacks - cards.begin());
  return std::unexpected(Error{PACELINE_COMM_EPEER, static_cast<int>(rank),
                               "plan: transport=rdma: " + rank_name(rank) + " has no RDMA (" +
                                   lacks->no_rdma + "): give it a device, or use transport=auto"});
}

std::expected<void, Error> settle_hops(std::span<Hop> hops, std::uint32_t rank,
                                       const std::vector<Card>& cards, const Rdma* rdma,
                                       Transport transport, Watch& watch,
                                       Clock::time_point deadline) {
  std::vector<std::expected<void, Error>> results(hops.size());
  // One after another a whole ring of ranks would wait for each other.
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < hops.size(); ++i) {
    Hop& hop = hops[i];
    if (!hop.is_far()) continue;
    hop.agreed.refusal = why_no_rdma(cards, rank, hop.peer);
    if (!hop.agreed.refusal.empty()) continue;
    Attempt wanted{.rdma = *rdma, .rails = {}, .slot_bytes = kSlotBytes, .sends = hop.sends};
    for (std::size_t rail = 0; rail < std::min(cards[rank].rails, cards[hop.peer].rails); ++rail)
      wanted.rails.push_back(rail);
    threads.emplace_back(
        [&hop, &result = results[i], wanted = std::move(wanted), &watch, deadline] {
          auto agreed = agree(hop.flows.front(), hop.peer, wanted, watch, deadline);
          if (agreed) {
            hop.agreed = std::move(*agreed);
          } else {
            result = std::unexpected(agreed.error());
          }
        });
  }
  threads.clear();  // joins them
  for (std::size_t i = 0; i < hops.size(); ++i) {
    if (!results[i]) return results[i];
    if (transport == Transport::kRdma && hops[i].is_far() && hops[i].agreed.rails.empty())
      return std::unexpected(
          Error{PACELINE_COMM_EPEER, static_cast<int>(hops[i].peer),
                "plan: transport=rdma: " + rank_name(rank) + " and " + rank_name(hops[i].peer) +
                    " have no way by RDMA: " + hops[i].agreed.refusal + "; or use transport=auto"});
  }
  return {};
}

std::string describe_hops(std::span<const Hop> hops, std::uint32_t rank, const Rdma* rdma) {
  std::string text;
  // There and back is mostly the same, and a lane's neighbours are mostly the flat ring's.
  std::set<std::pair<std::uint32_t, std::string>> said;
  for (const Hop& hop : hops) {
    if (!hop.is_far()) continue;
    std::string way;
    for (std::size_t rail = 0; rail < hop.agreed.rails.size(); ++rail)
      way += (rail == 0 ? " by RDMA " : "+") + rdma->name(rail);
    if (way.empty()) way = " by TCP: " + hop.agreed.refusal;
    if (!said.emplace(hop.peer, way).second) continue;
    const auto [from, to] = hop.sends ? std::pair(rank, hop.peer) : std::pair(hop.peer, rank);
    text += " # " + rank_name(from) + " to " + rank_name(to) + way;
  }
  return text;
}

std::vector<int> files_of(std::span<const Hop> hops, const Rdma* rdma) {
  std::vector<int> files = rdma == nullptr ? std::vector<int>() : rdma->files();
  for (const Hop& hop : hops) {
    for (const auto& rail : hop.agreed.rails) files.push_back(rail->file());
    // Connections end with the hop where it goes by RDMA.
    if (hop.agreed.rails.empty())
      for (const base::Fd& flow : hop.flows) files.push_back(flow.get());
  }
  return files;
}

std::unique_ptr<SendLink> make_sender(Hop&& hop, Watch& watch) {
  if (!hop.agreed.rails.empty())
    return std::make_unique<RdmaSender>(std::move(hop.agreed.rails), Between::kAll, hop.peer,
                                        watch);
  return std::make_unique<TcpSender>(std::move(hop.flows), hop.peer, watch);
}

std::unique_ptr<ReceiveLink> make_receiver(Hop&& hop, Watch& watch) {
  if (!hop.agreed.rails.empty())
    return std::make_unique<RdmaReceiver>(std::move(hop.agreed.rails), Between::kAll, hop.peer,
                                          watch);
  return std::make_unique<TcpReceiver>(std::move(hop.flows), hop.peer, watch);
}

}  // namespace paceline::comm
