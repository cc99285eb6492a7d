// SPDX-License-Identifier: Apache-2.0
// Turns the reports of launchers (job summary and termination message, docs/designs/contracts.md)
// into status. Lenient and bounded, because reports come from containers that run users' code.
// Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace paceline::status {

/// The part of a report that the operator acts on.
struct Report {
  std::string
      // from a termination message: Succeeded, Failed, Terminated, BadContract, RendezvousTimeout,
      // PreflightFailed
      verdict;
  std::string phase;  // from a summary: Gathering, Running, Restarting, …
  std::string message;
  int attempt = 0;
  int restarts = 0;
  bool complete = true;  // from a summary: all launchers of the gang are connected
  // from a summary: the node ranks whose launchers are not; nullopt if it names too few or too many
  std::optional<std::vector<int>> missing;
  nlohmann::json training;    // in the CRD's shape; null if there is none
  nlohmann::json goodput;     // in the CRD's shape; null if there is none
  nlohmann::json checkpoint;  // in the CRD's shape; null if no save before an end was seen
  nlohmann::json culprit;     // in the CRD's shape; null if there is none
  nlohmann::json effects;     // in the CRD's shape; null if the report says nothing of them
  nlohmann::json findings;    // in the CRD's shape; null if there are none
};

/// nullopt if the text is not a report of version 1.
std::optional<Report> read_report(std::string_view text);

/// True if `now` is worth a write soon after the last one: another bottleneck, or the first step.
bool notable(const nlohmann::json& before, const nlohmann::json& now);

/// True if findings came or went, whatever their numbers are now.
bool other_findings(const nlohmann::json& before, const nlohmann::json& now);

/// The checkpoint of the later attempt, or step. A report may be read again when a later one was.
nlohmann::json later_checkpoint(const nlohmann::json& kept, const nlohmann::json& reported);

}  // namespace paceline::status
