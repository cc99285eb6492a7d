// SPDX-License-Identifier: Apache-2.0
// The documents that a launcher writes: the job summary (/v1/summary), the termination message and
// the full report. Their shapes are in docs/designs/contracts.md. Pure. The result is valid JSON
// for any bytes that a program has logged.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/telemetry/stats/summary.hpp"
#include "launcher/diagnosis/finding.hpp"
#include "launcher/rendezvous/message.hpp"
#include "launcher/summary/effects.hpp"
#include "launcher/summary/goodput.hpp"
#include "launcher/summary/model_flops.hpp"
#include "launcher/summary/step_history.hpp"

namespace paceline::summary {

struct JobState {
  std::string job_uid;
  std::string phase;
  int attempt = 0;
  int restarts = 0;
  int gathered = 0;
  int expected = 0;
  std::optional<rendezvous::Culprit> culprit;
  std::vector<int> missing = {};  // node ranks
  std::optional<Effects> effects = {};
  const StepHistory* history = nullptr;  // null: none is kept
  diagnosis::Findings findings = {};
  std::optional<ModelFlops> model = {};
  std::optional<telemetry::Goodput> goodput = {};
  std::optional<rendezvous::SavedStep> saved = {};
};

nlohmann::json training(const telemetry::JobSummary& summary,
                        const std::optional<ModelFlops>& model, bool with_ranks);
std::string summary_document(const JobState& state, const telemetry::JobSummary& summary);

struct Ending {
  std::string verdict;
  int attempt = 0;
  int restarts = 0;
  std::string message;
  std::optional<rendezvous::Culprit> culprit;
  std::string report;  // path of the full report; "" if there is none
  std::optional<Effects> effects = {};
  diagnosis::Findings findings = {};
  std::optional<ModelFlops> model = {};
  std::optional<telemetry::Goodput> goodput = {};
  std::optional<rendezvous::SavedStep> saved = {};
};

/// At most `limit` bytes. The reasons of effects are dropped first, then log lines, the oldest
/// first, then findings, effects, the training summary and goodput; at last the message is cut.
std::string termination_message(const Ending& ending, const telemetry::JobSummary& summary,
                                std::size_t limit);
/// The stacks that were captured last, by rank.
std::string stacks_document(int attempt, const std::map<int, std::string>& stacks);
std::string report_document(const Ending& ending, const telemetry::JobSummary& summary);

}  // namespace paceline::summary
