// SPDX-License-Identifier: Apache-2.0
// What can be done against each bottleneck, and how much that can gain at most. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/watch/facts.hpp"

namespace paceline::cli {

struct Remedy {
  std::string_view bottleneck;             // of a summary
  std::optional<std::size_t> phase;        // whose time it is
  std::string_view limits;                 // "Waiting for batches limits it"
  std::string_view advice;                 // a sentence
  std::vector<std::string_view> features;  // of spec.acceleration that work on it
};

/// nullptr for a bottleneck that is not known.
const Remedy* remedy_of(std::string_view bottleneck);

struct Help {
  std::string text;
  std::optional<double> bound;  // steps a second more, if the phase cost nothing at all
};

/// What helps against the phases that cost 5 % of a step or more, the largest first, and against
/// computing if that limits the job. What a finding advises already is left out.
std::vector<Help> helps(const JobFacts& facts);

}  // namespace paceline::cli
