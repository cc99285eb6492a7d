// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/phases.hpp"

#include <algorithm>
#include <cmath>

namespace paceline::cli {

const std::array<PhaseLook, telemetry::kPhases>& phase_looks() {
  static constexpr std::array<PhaseLook, telemetry::kPhases> kLooks{{
      {'d', "data", 208, "#e8762d"},            // data_wait
      {'h', "copy to device", 180, "#d9b38c"},  // h2d
      {'f', "forward", 33, "#2f7ed8"},          // forward
      {'b', "backward", 26, "#1b4f9c"},         // backward
      {'c', "communication", 160, "#c62f3b"},   // comm_exposed
      {'o', "optimizer", 71, "#5aa352"},        // optimizer
      {'k', "checkpoint", 134, "#9b59b6"},      // checkpoint
      {'e', "evaluation", 73, "#4fb0ae"},       // evaluation
      {'r', "recompute", 67, "#6f8fb8"},        // recompute
      {'p', "pipeline wait", 167, "#d9656d"},   // pipeline_bubble
      {'x', "compute", 32, "#2468b4"},          // compute_undivided
      {'m', "copies", 143, "#b5a642"},          // memcpy_other
      {'w', "waits for host", 240, "#5c5c5c"},  // idle_host
      {'g', "idle", 245, "#8a8a8a"},            // idle_gap
      {'t', "other", 249, "#b2b2b2"},           // other
      {'u', "without a mark", 253, "#dadada"},  // unattributed
  }};
  return kLooks;
}

std::vector<std::size_t> bar_cells(const telemetry::PhaseSeconds& shares, std::size_t width) {
  std::vector<std::size_t> cells;
  const double total = std::max(1.0, telemetry::sum(shares));
  double until = 0;
  for (std::size_t phase = 0; phase < telemetry::kPhases; ++phase) {
    // Rounding the ends, not the lengths, keeps the whole bar as long as the sum.
    until += std::max(0.0, shares[phase]) / total;
    const auto end =
        static_cast<std::size_t>(std::lround(std::min(1.0, until) * static_cast<double>(width)));
    cells.resize(std::max(cells.size(), std::min(end, width)), phase);
  }
  cells.resize(width, telemetry::kPhases);
  return cells;
}

}  // namespace paceline::cli
