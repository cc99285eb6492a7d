// SPDX-License-Identifier: Apache-2.0
// Connects ranks: every pair for watching, and each rank with its neighbours in the rings. Who
// connects shows the nonce from the other's card; what does not is dropped.
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

struct Wires {
  std::vector<base::Fd> watch;  // one for each rank
  // of the flat ring, where that rank is on another host
  std::vector<base::Fd> to_next, from_previous;
  std::vector<base::Fd> lane_to_next, lane_from_previous;  // of this rank's lane
};

// The neighbours of this rank in its lane.
std::uint32_t lane_next(const Topology& topology);
std::uint32_t lane_previous(const Topology& topology);

std::expected<Wires, Error> meet(const Topology& topology, const std::vector<Card>& cards,
                                 const std::vector<base::Fd>& doors, std::uint32_t flows,
                                 bool lanes, Clock::time_point deadline);

}  // namespace paceline::comm
