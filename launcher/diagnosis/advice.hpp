// SPDX-License-Identifier: Apache-2.0
// What to do about a phase that takes too long, about a bottleneck, and about a failure. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "common/telemetry/stats/summary.hpp"
#include "launcher/diagnosis/finding.hpp"
#include "launcher/rendezvous/failure.hpp"

namespace paceline::diagnosis {

/// The finding about what limits the job's steps. nullopt if they compute, or too little is known.
std::optional<Finding> bottleneck_of(const telemetry::JobSummary& job,
                                     WaitsFor waits_for = WaitsFor::kRanks);

/// The remedy of the rank whose time in `phase` is longer than the others', or than before.
std::string advice_for_phase(std::size_t phase, const std::string& node);

/// The finding about a rank that ended the attempt: `text` says how it ended.
Finding failure_of(const rendezvous::Culprit& culprit, std::string node, std::string text);

}  // namespace paceline::diagnosis
