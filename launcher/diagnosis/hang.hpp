// SPDX-License-Identifier: Apache-2.0
// Whether a job hangs, and which rank the others wait for. Pure functions over what the ranks were
// doing when their launchers last reported.
//
// A rank lives as long as its marks come: a batch, a backward, a step. The job is quiet when no
// mark has come from any rank. How long it may be quiet depends on what the ranks are doing, since
// an evaluation, a checkpoint or the first step takes longer than a step.
#pragma once

#include <optional>
#include <vector>

#include "launcher/diagnosis/finding.hpp"
#include "launcher/diagnosis/rank_at.hpp"

namespace paceline::diagnosis {

/// Times the 95th percentile of the steps, where that is longer than the floor.
inline constexpr double kPatienceSteps = 10;
/// Times the patience for a step: evaluations, checkpoints, first steps, and what follows training.
inline constexpr double kLongPatience = 6;

struct Quiet {
  enum class Doing {
    kStepping,  // some rank is inside a step, or waits for another rank
    kBetween,   // all ranks are between steps, where a program may do anything
    kLong,      // a rank evaluates or saves, or no step has ended yet
  };
  double seconds = 0;   // since the last mark of any rank
  double patience = 0;  // after which that is a hang, if the ranks are stepping
  Doing doing = Doing::kStepping;

  /// The ranks are to be asked for their stacks.
  bool wants_stacks() const {
    return seconds >= (doing == Doing::kLong ? kLongPatience * patience : patience);
  }
};

/// nullopt if no rank is known to train. `floor`: seconds.
std::optional<Quiet> quiet_of(const std::vector<RankAt>& ranks, double floor);

/// The verdict about a job that is quiet for too long. nullopt: it may still be at work.
std::optional<Finding> hang_of(const std::vector<RankAt>& ranks, const Quiet& quiet,
                               WaitsFor waits_for = WaitsFor::kRanks);

}  // namespace paceline::diagnosis
