// SPDX-License-Identifier: Apache-2.0
#include "comm/bootstrap/inter_node_links.hpp"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <thread>
#include <utility>

#include "comm/transport/tcp/tcp_link.hpp"

namespace paceline::comm {

std::string why_no_rdma(const std::vector<PeerInfo>& peers, std::uint32_t rank,
                        std::uint32_t peer) {
  if (peers[rank].nics == 0) return peers[rank].no_rdma;
  if (peers[peer].nics == 0) return rank_name(peer) + ": " + peers[peer].no_rdma;
  return peers[rank].host == peers[peer].host ? "both are on one host" : "";
}

std::unique_ptr<Rdma> open_rdma_for(Transport transport, PeerInfo& info) {
  if (transport == Transport::kTcp) {
    info.no_rdma = "transport=tcp";
    return nullptr;
  }
  const auto settings =
      read_rdma_settings([](const char* name) -> const char* { return std::getenv(name); });
  auto rdma = settings ? open_rdma(*settings) : std::unexpected(settings.error());
  if (!rdma) {
    info.no_rdma = rdma.error();
    // The reason is sent in a text of lines, so it must not have line breaks.
    std::ranges::replace(info.no_rdma, '\n', ' ');
    return nullptr;
  }
  info.nics = static_cast<std::uint32_t>((*rdma)->nics());
  return std::move(*rdma);
}

std::expected<void, Error> check_transport(Transport transport,
                                           const std::vector<PeerInfo>& peers) {
  const auto elsewhere = [&](const PeerInfo& info) { return info.host != peers.front().host; };
  if (transport != Transport::kRdma || std::ranges::none_of(peers, elsewhere)) return {};
  const auto lacks = std::ranges::find(peers, 0U, &PeerInfo::nics);
  if (lacks == peers.end()) return {};
  const auto rank = static_cast<std::uint32_t>(lacks - peers.begin());
  return std::unexpected(Error{PACELINE_COMM_EPEER, static_cast<int>(rank),
                               "plan: transport=rdma: " + rank_name(rank) + " has no RDMA (" +
                                   lacks->no_rdma + "): give it a device, or use transport=auto"});
}

std::expected<void, Error> agree_on_hops(std::span<Hop> hops, std::uint32_t rank,
                                         const std::vector<PeerInfo>& peers, const Rdma* rdma,
                                         Transport transport, FailureDetector& detector,
                                         Clock::time_point deadline) {
  std::vector<std::expected<void, Error>> results(hops.size());
  // Hops agree in parallel: one after another, all ranks of a ring would wait for each other.
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < hops.size(); ++i) {
    Hop& hop = hops[i];
    if (!hop.is_inter_node()) continue;
    hop.agreed.refusal = why_no_rdma(peers, rank, hop.peer);
    if (!hop.agreed.refusal.empty()) continue;
    Attempt wanted{.rdma = *rdma, .nics = {}, .slot_bytes = kSlotBytes, .sends = hop.sends};
    for (std::size_t nic = 0; nic < std::min(peers[rank].nics, peers[hop.peer].nics); ++nic)
      wanted.nics.push_back(nic);
    threads.emplace_back(
        [&hop, &result = results[i], wanted = std::move(wanted), &detector, deadline] {
          auto agreed = agree(hop.flows.front(), hop.peer, wanted, detector, deadline);
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
    if (transport == Transport::kRdma && hops[i].is_inter_node() && hops[i].agreed.nics.empty())
      return std::unexpected(
          Error{PACELINE_COMM_EPEER, static_cast<int>(hops[i].peer),
                "plan: transport=rdma: " + rank_name(rank) + " and " + rank_name(hops[i].peer) +
                    " have no way by RDMA: " + hops[i].agreed.refusal + "; or use transport=auto"});
  }
  return {};
}

std::string describe_hops(std::span<const Hop> hops, std::uint32_t rank, const Rdma* rdma) {
  std::string text;
  // Name each pair once: both directions mostly agree, and a channel mostly has the ring's
  // neighbours.
  std::set<std::pair<std::uint32_t, std::string>> said;
  for (const Hop& hop : hops) {
    if (!hop.is_inter_node()) continue;
    std::string way;
    for (std::size_t nic = 0; nic < hop.agreed.nics.size(); ++nic)
      way += (nic == 0 ? " by RDMA " : "+") + rdma->name(nic);
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
    for (const auto& nic : hop.agreed.nics) files.push_back(nic->file());
    // A hop that uses RDMA closes its TCP connections.
    if (hop.agreed.nics.empty())
      for (const base::Fd& flow : hop.flows) files.push_back(flow.get());
  }
  return files;
}

std::unique_ptr<SendLink> make_sender(Hop&& hop, FailureDetector& detector) {
  if (!hop.agreed.nics.empty())
    return std::make_unique<RdmaSender>(std::move(hop.agreed.nics), Between::kAll, hop.peer,
                                        detector);
  return std::make_unique<TcpSender>(std::move(hop.flows), hop.peer, detector);
}

std::unique_ptr<ReceiveLink> make_receiver(Hop&& hop, FailureDetector& detector) {
  if (!hop.agreed.nics.empty())
    return std::make_unique<RdmaReceiver>(std::move(hop.agreed.nics), Between::kAll, hop.peer,
                                          detector);
  return std::make_unique<TcpReceiver>(std::move(hop.flows), hop.peer, detector);
}

}  // namespace paceline::comm
