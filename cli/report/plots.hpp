// SPDX-License-Identifier: Apache-2.0
// The plots of a report as inline SVG. Each has its numbers in titles, which a browser shows under
// the pointer. Pure.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/watch/facts.hpp"

namespace paceline::cli {

/// A bar of parts one after another.
struct BarPart {
  std::string name;
  double share = 0;  // of the bar
  std::string colour;
};
struct BarRow {
  std::string label;
  std::string value;  // right of the bar
  std::vector<BarPart> parts;
};

/// Rows of bars of one length; "" without rows.
std::string stacked_bars(const std::vector<BarRow>& rows);

/// The parts of a step, without those that took no time.
std::vector<BarPart> phase_parts(const telemetry::PhaseSeconds& shares);

/// A box of colour and a name for each part that occurs in the rows.
std::string legend(const std::vector<BarRow>& rows);

/// Step time over time, with axes; "" with fewer than two points.
std::string history_plot(const std::vector<HistoryPoint>& history);

}  // namespace paceline::cli
