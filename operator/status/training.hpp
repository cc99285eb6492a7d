// SPDX-License-Identifier: Apache-2.0
// What launchers report (job summary, termination message: docs/designs/contracts.md), turned into
// status. Lenient and bounded: it comes from a container that runs somebody's code. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace paceline::status {

/// The part of a summary or termination message that the operator acts on.
struct Report {
  std::string
      // of a termination message: Succeeded, Failed, Terminated, BadContract, RendezvousTimeout,
      // PreflightFailed
      verdict;
  std::string phase;  // of a summary: Gathering, Running, Restarting, …
  std::string message;
  int attempt = 0;
  int restarts = 0;
  nlohmann::json training;  // in the CRD's shape; null when there is none
  nlohmann::json culprit;   // likewise
};

/// Nothing when the text is not a report of version 1.
std::optional<Report> read_report(std::string_view text);

/// Whether `now` is worth a write although the last one was a moment ago: another bottleneck, or
/// the first step.
bool notable(const nlohmann::json& before, const nlohmann::json& now);

}  // namespace paceline::status
