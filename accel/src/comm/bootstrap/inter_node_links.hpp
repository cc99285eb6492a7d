// SPDX-License-Identifier: Apache-2.0
// The links of one rank to other hosts: by RDMA where both ends can and the plan allows it, else by
// TCP.
//
// Ownership: a hop owns its connections and NICs until a link takes them. Threads: one, and one
// more for each hop meanwhile. Blocking: until the deadline. Failure: an error that names the rank.
#pragma once

#include <chrono>
#include <expected>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/bootstrap/rdma_agreement.hpp"
#include "comm/plan/plan.hpp"

namespace paceline::comm {

// Of one rank to or from another; with no connections it is no hop between hosts.
struct Hop {
  std::uint32_t peer = 0;
  bool sends = false;
  std::vector<base::Fd> flows;
  Agreed agreed{};

  bool is_inter_node() const { return !flows.empty(); }
};

// Empty where the two may try RDMA.
std::string why_no_rdma(const std::vector<PeerInfo>& peers, std::uint32_t rank, std::uint32_t peer);

// What this process has, or an empty pointer and why: both of its peer info.
std::unique_ptr<Rdma> open_rdma_for(Transport transport, PeerInfo& info);
// Where the plan wants RDMA and a rank has none: that rank.
std::expected<void, Error> check_transport(Transport transport, const std::vector<PeerInfo>& peers);

// Fills in what they have agreed on. `rdma`: null where this rank has none.
std::expected<void, Error> agree_on_hops(std::span<Hop> hops, std::uint32_t rank,
                                         const std::vector<PeerInfo>& peers, const Rdma* rdma,
                                         Transport transport, FailureDetector& detector,
                                         Clock::time_point deadline);
// " # rank 1 to rank 2 by RDMA mlx5_0", for the plan's readers.
std::string describe_hops(std::span<const Hop> hops, std::uint32_t rank, const Rdma* rdma);

// What a forked child closes.
std::vector<int> files_of(std::span<const Hop> hops, const Rdma* rdma);

std::unique_ptr<SendLink> make_sender(Hop&& hop, FailureDetector& detector);
std::unique_ptr<ReceiveLink> make_receiver(Hop&& hop, FailureDetector& detector);

}  // namespace paceline::comm
