// SPDX-License-Identifier: Apache-2.0
// Which rank is late for a collective of NCCL, by the numbers that NCCL's profiler plugin counts.
// A host only launches collectives, so its phase and its stack do not show that its GPU waits.
// docs/designs/nccl-profiler.md says what the numbers mean. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "launcher/diagnosis/rank_at.hpp"

namespace paceline::diagnosis {

/// The number of the collective that the rank has called and that has not ended on its GPU; 0 if
/// none is known.
std::uint64_t awaited(const RankAt& rank);

/// "collective 12 of a communicator of 8 ranks"
std::string shown_collective(std::uint64_t number, const RankAt& rank);

struct Late {
  std::vector<const RankAt*> ranks = {};  // by number
  std::size_t waiting = 0;                // other ranks that show their communicators
};

/// Ranks that have not called a collective which another rank of their communicator waits in, and
/// that wait in none themselves. Where NCCL does not tell when collectives end, the ranks with the
/// lowest number, if all ranks show one communicator.
Late not_called(const std::vector<RankAt>& ranks);

/// Ranks that wait in a collective which has ended on another rank, which waits in a later one.
Late not_finished(const std::vector<RankAt>& ranks);

}  // namespace paceline::diagnosis
