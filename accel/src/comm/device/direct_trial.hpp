// SPDX-License-Identifier: Apache-2.0
// Whether GPUDirect RDMA really carries what lies in a GPU's memory: numbers that the ranks of a
// lane know of each other go through all its slots, rails and queue pairs as shards do, large ones
// and then small ones, and the sums must be right. A mapping that is wrong fails by its content
// alone.
//
// Ownership: none. Threads: one. Blocking: until `until`. Failure: a text.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "direct_lane.hpp"

namespace paceline::comm::device {

// The lane is connected, nothing else uses the pool. `salts`: a random number of each rank of the
// lane, by host; `position` is this rank's. Empty, or why not.
std::string try_lane(DirectLane& lane, Pool& pool, std::span<const std::uint32_t> salts,
                     std::uint32_t position, std::uint32_t local, Clock::time_point until);

}  // namespace paceline::comm::device
