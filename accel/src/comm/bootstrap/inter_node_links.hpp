// SPDX-License-Identifier: Apache-2.0
// The links between hosts of one rank: by RDMA where both ends can and the plan lets them, else by
// TCP.
//
// Ownership: a hop's connections and rails until a link has taken them. Threads: one, and one more
// for each hop meanwhile. Blocking: until the deadline. Failure: an error that names the rank.
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

  bool is_far() const { return !flows.empty(); }
};

// Empty where the two may try RDMA.
std::string why_no_rdma(const std::vector<Card>& cards, std::uint32_t rank, std::uint32_t peer);

// What this process has, or an empty pointer and why: both of its card.
std::unique_ptr<Rdma> open_for_card(Transport transport, Card& card);
// Where the plan wants RDMA and a rank has none: that rank.
std::expected<void, Error> check_transport(Transport transport, const std::vector<Card>& cards);

// Fills in what they have agreed on. `rdma`: null where this rank has none.
std::expected<void, Error> settle_hops(std::span<Hop> hops, std::uint32_t rank,
                                       const std::vector<Card>& cards, const Rdma* rdma,
                                       Transport transport, Watch& watch,
                                       Clock::time_point deadline);
// " # rank 1 to rank 2 by RDMA mlx5_0", for the plan's readers.
std::string describe_hops(std::span<const Hop> hops, std::uint32_t rank, const Rdma* rdma);

// What a forked child closes.
std::vector<int> files_of(std::span<const Hop> hops, const Rdma* rdma);

std::unique_ptr<SendLink> make_sender(Hop&& hop, Watch& watch);
std::unique_ptr<ReceiveLink> make_receiver(Hop&& hop, Watch& watch);

}  // namespace paceline::comm
