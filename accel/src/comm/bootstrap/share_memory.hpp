// SPDX-License-Identifier: Apache-2.0
// Gives all ranks of a host the same memory. The first rank makes it and sends its descriptor to
// each rank that connects to its listener and shows the nonce of its peer info. Then each rank
// tells the others, through the store, whether it has the memory. If one rank of a host does not,
// all ranks of that host count as hosts of their own. Reasons are another user, another container,
// or a kernel or sandbox that refuses.
//
// Ownership: the caller owns the region. Threads: one, and one of its own meanwhile. Blocking: on
// poll and the store, until the deadline. Failure: an error that names a rank. Memory that cannot
// be shared is no failure.
#pragma once

#include <expected>
#include <memory>
#include <string>
#include <vector>

#include "comm/bootstrap/peer_info.hpp"
#include "comm/plan/plan.hpp"
#include "comm/transport/shm/region.hpp"

namespace paceline::comm {

struct Shared {
  std::unique_ptr<Region> region;     // set if this rank has mates and all of them have mapped it
  std::vector<std::string> refusals;  // for each rank, why it cannot share memory
};

std::expected<Shared, Error> share_region(const Store& store, const Topology& topology,
                                          const std::vector<PeerInfo>& peers, base::Fd& listener,
                                          std::size_t chunk, Clock::time_point deadline);

}  // namespace paceline::comm
