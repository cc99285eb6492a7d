// SPDX-License-Identifier: Apache-2.0
// Connects the ranks of a communicator: every pair for the failure detector, and each rank with its
// neighbours in the rings. Start reading this room here; Communicator::create uses it. A connecting
// rank shows the nonce from the other's peer info. Connections without it are dropped.
//
// Ownership: the sockets go to the caller. Threads: one. Blocking: on poll, until the deadline.
// Failure: an error that names the rank.
#pragma once

#include <expected>
#include <vector>

#include "base/fd.hpp"
#include "comm/bootstrap/peer_info.hpp"
#include "comm/plan/plan.hpp"

namespace paceline::comm {

struct Connections {
  std::vector<base::Fd> detector;  // one for each rank
  // The flat ring's connections; empty where that neighbour is on this host.
  std::vector<base::Fd> to_next, from_previous;
  std::vector<base::Fd> channel_to_next,
      channel_from_previous;  // the connections of this rank's channel
};

// The neighbours of this rank in its channel.
std::uint32_t channel_next(const Topology& topology);
std::uint32_t channel_previous(const Topology& topology);

std::expected<Connections, Error> connect_ranks(const Topology& topology,
                                                const std::vector<PeerInfo>& peers,
                                                const std::vector<base::Fd>& listeners,
                                                std::uint32_t flows, bool channels,
                                                Clock::time_point deadline);

}  // namespace paceline::comm
