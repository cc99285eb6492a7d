// SPDX-License-Identifier: Apache-2.0
#include "launcher/diagnosis/window.hpp"

#include <algorithm>

namespace paceline::diagnosis {

std::optional<RankWindow> between(const telemetry::RankSummary& before,
                                  const telemetry::RankSummary& after) {
  // The attempt's own number starts again with each attempt.
  if (after.steps < before.steps || after.step < before.step || before.settled.steps == 0)
    return std::nullopt;
  RankWindow window;
  window.rank = after.rank;
  window.steps = static_cast<double>(after.steps - before.steps);
  if (window.steps < kFewestSteps) return std::nullopt;
  for (std::size_t phase = 0; phase < telemetry::kPhases; ++phase)
    window.phases[phase] = std::max(0.0, after.total[phase] - before.total[phase]);
  for (std::size_t phase = 0; phase < telemetry::kPhases; ++phase)
    window.device[phase] = std::max(0.0, after.device_total[phase] - before.device_total[phase]);
  // The launcher took steps and processor time at the same moment.
  const double elapsed = telemetry::sum(window.phases);
  if (before.lost_processor && after.lost_processor && elapsed > 0) {
    const auto share = [elapsed](double then, double now) {
      return std::clamp((now - then) / elapsed, 0.0, 1.0);
    };
    window.waited = share(before.lost_processor->waited, after.lost_processor->waited);
    window.throttled = share(before.lost_processor->throttled, after.lost_processor->throttled);
    window.stolen = share(before.lost_processor->stolen, after.lost_processor->stolen);
  }
  window.host_times_of_gpu = after.host_times_of_gpu != 0;
  return window;
}

double step_seconds(const RankWindow& window) {
  const double seconds = telemetry::sum(window.phases) - window.phases[PACELINE_PHASE_EVALUATION] -
                         window.phases[PACELINE_PHASE_CHECKPOINT];
  return window.steps > 0 ? std::max(0.0, seconds) / window.steps : 0;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace paceline::diagnosis
