// SPDX-License-Identifier: Apache-2.0
// What `paceline run --compare` measures: the time of a step in runs with acceleration and without,
// in turn, and what their difference is worth. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/run/view.hpp"

namespace paceline::cli {

inline constexpr std::uint64_t kFewestSteps = 8;

/// How long a step of rank 0 took in a run that has ended. Evaluations and checkpoints count, as
/// they do for the person who waits for the job. nullopt if fewer than kFewestSteps followed the
/// first ones (telemetry::kWarmSteps).
std::optional<double> seconds_a_step(const JobView& view);

/// The runs of a comparison, in order: without, with, with, without, … A machine that slows down
/// slowly slows both sides of two pairs alike.
std::vector<bool> order_of_runs(int pairs);

/// Seconds a step of two neighbouring runs.
struct PacePair {
  double without = 0;
  double with = 0;
};

/// The gain in steps a second, and its 95 % interval by Student's t over the logarithms of the
/// pairs' ratios: 0.1 is 10 % more.
struct Gain {
  double mean = 0;
  double low = 0;
  double high = 0;
};
/// At least two pairs.
Gain gain_of(const std::vector<PacePair>& pairs);

/// A line for each pair, and what follows.
std::string comparison_text(const std::vector<PacePair>& pairs);

}  // namespace paceline::cli
