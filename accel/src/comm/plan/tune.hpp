// SPDX-License-Identifier: Apache-2.0
// Chooses the quickest algorithm of an all-reduce for each size. It times every candidate at a few
// sizes and interpolates between them. Communicator::tune uses it where the job gives no plan.
//
// Ownership: none. Threads: one. Failure: nullopt if a trial failed.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <vector>

#include "comm/plan/plan.hpp"

namespace paceline::comm {

// Does one allreduce of this many bytes as `way` and returns its seconds. The number is the same on
// all ranks, so that all choose the same.
using Trial = std::function<std::optional<double>(const Way& way, std::uint64_t bytes)>;

inline constexpr std::uint64_t kLargestTrial = 16UL << 20;

// Stops early to stay within `budget`; the largest size tried then applies to all larger ones.
// `flows`: the numbers of connections to try with the quickest way, besides all.
std::optional<std::vector<Choice>> choose(const std::vector<Way>& candidates,
                                          const std::vector<std::uint32_t>& flows,
                                          std::chrono::milliseconds budget, const Trial& trial);

}  // namespace paceline::comm
