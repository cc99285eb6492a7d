// SPDX-License-Identifier: Apache-2.0
// A window: what each rank did between two summaries of it. Pure. Diagnosis cuts a job's time into
// windows and judges each.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/telemetry/stats/summary.hpp"

namespace paceline::diagnosis {

struct RankWindow {
  int rank = 0;
  std::string node = {};
  double steps = 0;
  telemetry::PhaseSeconds phases{};  // seconds in all steps of the window
  telemetry::PhaseSeconds device{};  // the same on the device's clock; all 0 if it is unknown
  // shares of the window in which the rank had no processor
  double waited = 0;
  double throttled = 0;
  double stolen = 0;
  bool host_times_of_gpu = false;  // the phases say nothing of what the step does

  /// The phases that say what the rank itself did.
  const telemetry::PhaseSeconds& judged() const {
    return telemetry::sum(device) > 0 ? device : phases;
  }
};
using Windows = std::vector<RankWindow>;

/// Fewer steps make no window, since one long step would decide it.
inline constexpr double kFewestSteps = 4;

/// nullopt if the rank made too few steps, still warms up, or was started anew in between.
std::optional<RankWindow> between(const telemetry::RankSummary& before,
                                  const telemetry::RankSummary& after);

/// Time of a step without evaluations and checkpoints, which some steps have and others have not.
double step_seconds(const RankWindow& window);

/// The lower median, so that of two values the smaller one is the usual; 0 if there are none.
double median(std::vector<double> values);

/// Of all ranks: the median of `value(window)`.
template <typename Value>
double median_of(const Windows& windows, Value&& value) {
  std::vector<double> values;
  values.reserve(windows.size());
  for (const RankWindow& window : windows) values.push_back(value(window));
  return median(std::move(values));
}

}  // namespace paceline::diagnosis
