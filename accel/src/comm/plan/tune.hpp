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

// Seconds of one allreduce of so many bytes done as `way`; the same number on all ranks, so that
// all choose the same.
using Trial = std::function<std::optional<double>(const Way& way, std::uint64_t bytes)>;

inline constexpr std::uint64_t kLargestTrial = 16UL << 20;

// Ends early rather than spend more than `budget` on it; the largest size tried then stands for all
// above. `flows`: the numbers of connections, but for all, that the quickest way is tried with.
std::optional<std::vector<Choice>> choose(const std::vector<Way>& candidates,
                                          const std::vector<std::uint32_t>& flows,
                                          std::chrono::milliseconds budget, const Trial& trial);

}  // namespace paceline::comm
