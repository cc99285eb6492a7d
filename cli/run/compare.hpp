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

/// Measures how long rank 0's steps take, from the reports of one run. Evaluations and checkpoints
/// count, as they do for who waits for the job. The first steps do not: memory is allocated in
/// them, and libraries look for their quickest kernels.
class PaceMeter {
 public:
  static constexpr std::uint64_t kWarmSteps = 16;
  static constexpr std::uint64_t kFewestSteps = 8;

  void see(const JobView& view);
  /// Seconds; nullopt if fewer than kFewestSteps followed the first ones.
  std::optional<double> seconds_a_step() const;

 private:
  struct Mark {
    std::uint64_t steps = 0;
    double seconds = 0;
  };
  std::optional<Mark> first_;
  Mark last_;
};

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
