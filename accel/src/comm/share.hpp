// SPDX-License-Identifier: Apache-2.0
// Gives all ranks of a host the same memory: the first makes it and hands its descriptor to those who knock at its door, which is
// an abstract socket: neither has a name in a file system, so nothing is left behind however a rank ends. Same user only.
//
// Ownership: the region is the caller's. Threads: one. Blocking: on poll, until the deadline or the watch's failure.
// Failure: an error that names a rank where one is to blame.
#pragma once

#include <expected>
#include <memory>

#include "card.hpp"
#include "plan.hpp"
#include "region.hpp"
#include "watch.hpp"

namespace paceline::comm {

std::expected<std::unique_ptr<Region>, Error> share_region(const Topology& topology, const std::vector<Card>& cards,
                                                           const Fd& door, std::size_t chunk, const Watch& watch,
                                                           Clock::time_point deadline);

}  // namespace paceline::comm
