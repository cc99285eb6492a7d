// SPDX-License-Identifier: Apache-2.0
// Gives all ranks of a host the same memory: the first makes it and hands its descriptor to those
// who knock at its door and show the nonce of its card. Then each tells all, through the store,
// whether it has it: where one rank of a host has not, for whatever reason (another user, another
// container, what its kernel or its sandbox refuses), its ranks are hosts of their own from there
// on.
//
// Ownership: the region is the caller's. Threads: one, and one of its own meanwhile. Blocking: on
// poll and the store, until the deadline. Failure: an error that names a rank; memory that cannot
// be shared is none.
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
  std::unique_ptr<Region> region;     // where this rank has mates, and all of them have it
  std::vector<std::string> refusals;  // of each rank: why it cannot
};

std::expected<Shared, Error> share_region(const Store& store, const Topology& topology,
                                          const std::vector<Card>& cards, base::Fd& door,
                                          std::size_t chunk, Clock::time_point deadline);

}  // namespace paceline::comm
