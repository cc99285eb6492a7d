// SPDX-License-Identifier: Apache-2.0
// How the phases of a step look in terminals and pages: letters, names and colours, and the cells
// of a stacked bar. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

#include "common/telemetry/stats/phases.hpp"

namespace paceline::cli {

struct PhaseLook {
  char letter;              // in a bar, so that a bar can be read without colours
  std::string_view name;    // for people
  int terminal;             // colour of the 256 of terminals
  std::string_view colour;  // in pages; differs in lightness too, for people who see few colours
};

/// In the order of enum paceline_phase.
const std::array<PhaseLook, telemetry::kPhases>& phase_looks();

/// For each cell of a bar `width` cells long, its phase; the cells that no share claims are
/// telemetry::kPhases. The cells of a phase differ from its share by less than one.
std::vector<std::size_t> bar_cells(const telemetry::PhaseSeconds& shares, std::size_t width);

}  // namespace paceline::cli
