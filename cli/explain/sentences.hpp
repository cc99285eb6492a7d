// SPDX-License-Identifier: Apache-2.0
// What is known of a job, as plain sentences. Pure.
#pragma once

#include <string>
#include <vector>

#include "cli/watch/facts.hpp"
#include "common/base/clock.hpp"

namespace paceline::cli {

struct Section {
  std::string title;
  std::vector<std::string> sentences;
};

/// Sections without sentences are left out.
std::vector<Section> explain(const JobFacts& facts, WallTime now);

/// For a terminal: titles, and under each its sentences, broken at `width` columns.
std::string sections_text(const std::vector<Section>& sections, std::size_t width);

/// How many times the median rank's own time the slowest rank takes for a step, waiting for other
/// ranks left out; nullopt with fewer than two measured ranks.
struct Spread {
  int rank = 0;
  double ratio = 1;
};
std::optional<Spread> spread_of(const JobFacts& facts);

/// "waiting for nodes" for "waiting", …
std::string loss_name(const std::string& loss);

/// "10 % to 20 % quicker" for a gain of steps a second.
std::string gain_text(double low, double high);

}  // namespace paceline::cli
