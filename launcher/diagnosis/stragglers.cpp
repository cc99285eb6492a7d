// SPDX-License-Identifier: Apache-2.0
#include "launcher/diagnosis/stragglers.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "launcher/diagnosis/advice.hpp"
#include "launcher/diagnosis/lost_processor.hpp"

namespace paceline::diagnosis {
namespace {

constexpr std::size_t kMost = 4;
constexpr std::array<std::size_t, 7> kOwn{PACELINE_PHASE_DATA_WAIT,        PACELINE_PHASE_H2D,
                                          PACELINE_PHASE_FORWARD,          PACELINE_PHASE_BACKWARD,
                                          PACELINE_PHASE_OPTIMIZER,        PACELINE_PHASE_RECOMPUTE,
                                          PACELINE_PHASE_COMPUTE_UNDIVIDED};

double per_step(const RankWindow& window, std::size_t phase) {
  return window.judged()[phase] / window.steps;
}

double own_seconds(const RankWindow& window) {
  double seconds = 0;
  for (const auto phase : kOwn) seconds += per_step(window, phase);
  return seconds;
}

std::size_t longest_beyond(const Windows& windows, const RankWindow& slow) {
  std::size_t longest = kOwn.front();
  double most = 0;
  for (const auto phase : kOwn) {
    const double beyond = per_step(slow, phase) - median_of(windows, [&](const RankWindow& window) {
                            return per_step(window, phase);
                          });
    if (beyond > most) {
      most = beyond;
      longest = phase;
    }
  }
  return longest;
}

Finding about(const Windows& windows, const RankWindow& slow, double usual) {
  const double own = own_seconds(slow);
  std::array<char, 32> ratio{};
  (void)std::snprintf(ratio.data(), ratio.size(), "%.2f", own / usual);
  const std::size_t phase = longest_beyond(windows, slow);
  Finding finding{.kind = Kind::kStraggler, .rank = slow.rank, .node = slow.node};
  finding.text = "The ranks wait for " + shown_rank(slow.rank, slow.node) + ": it works " +
                 shown_seconds(own) + " in a step, " + ratio.data() +
                 " times as long as the median rank, most of it more in " +
                 std::string(telemetry::phase_name(phase)) + ".";
  if (const auto reason = lost_processor(windows, slow)) {
    finding.text += " " + reason->text;
    finding.advice = reason->advice;
  } else {
    finding.advice = advice_for_phase(phase, slow.node);
  }
  const double step = step_seconds(slow);
  finding.gain = at_most(step > 0 ? (own - usual) / step : 0);
  return finding;
}

}  // namespace

std::vector<Finding> stragglers(const Windows& windows) {
  std::vector<Finding> found;
  if (windows.size() < 2) return found;
  // The host's times of a GPU's program say when work was launched, not how long it took.
  const auto measured = std::ranges::count_if(
      windows, [](const RankWindow& window) { return telemetry::sum(window.device) > 0; });
  if (std::ranges::any_of(windows, &RankWindow::host_times_of_gpu) ||
      (measured > 0 && std::cmp_less(measured, windows.size())))
    return found;
  const double usual = median_of(windows, own_seconds);
  if (usual <= 0) return found;
  std::vector<std::pair<double, const RankWindow*>> slow;
  for (const RankWindow& window : windows) {
    const double own = own_seconds(window);
    if (own > kStragglerRatio * usual && own - usual > kStragglerShare * step_seconds(window))
      slow.emplace_back(own, &window);
  }
  std::ranges::sort(slow, std::ranges::greater{});
  for (const auto& [own, window] : slow) {
    if (found.size() < kMost) found.push_back(about(windows, *window, usual));
  }
  return found;
}

}  // namespace paceline::diagnosis
