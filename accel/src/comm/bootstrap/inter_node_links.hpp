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

// One direction between this rank and a peer. Without connections it is no hop between hosts.
struct Hop {
  std::uint32_t peer = 0;
  bool sends = false;
  std::vector<base::Fd> flows;
  Agreed agreed{};

  bool is_inter_node() const { return !flows.empty(); }
};

// Why the two ranks cannot try RDMA; empty if they can.
std::string why_no_rdma(const std::vector<PeerInfo>& peers, std::uint32_t rank, std::uint32_t peer);

// Opens this process's RDMA devices. Without any it returns null and puts the reason into `info`.
std::unique_ptr<Rdma> open_rdma_for(Transport transport, PeerInfo& info);
// Fails if the plan demands RDMA and a rank has none; the error names that rank.
std::expected<void, Error> check_transport(Transport transport, const std::vector<PeerInfo>& peers);

// Agrees with each peer on RDMA or TCP and fills in the result. `rdma` is null if this rank has
// none.
std::expected<void, Error> agree_on_hops(std::span<Hop> hops, std::uint32_t rank,
                                         const std::vector<PeerInfo>& peers, const Rdma* rdma,
                                         Transport transport, FailureDetector& detector,
                                         Clock::time_point deadline);
// For readers of the plan: " # rank 1 to rank 2 by RDMA mlx5_0".
std::string describe_hops(std::span<const Hop> hops, std::uint32_t rank, const Rdma* rdma);

// The descriptors that a forked child closes.
std::vector<int> files_of(std::span<const Hop> hops, const Rdma* rdma);

std::unique_ptr<SendLink> make_sender(Hop&& hop, FailureDetector& detector);
std::unique_ptr<ReceiveLink> make_receiver(Hop&& hop, FailureDetector& detector);

}  // namespace paceline::comm
