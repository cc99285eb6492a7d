// SPDX-License-Identifier: Apache-2.0
// A line of the screen as pieces with a style each, and its form for terminals. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "common/telemetry/stats/phases.hpp"

namespace paceline::cli {

enum class Look { kPlain, kBold, kSoft, kAlarm, kGood, kChosen, kPhase };

struct Piece {
  std::string text;  // clean
  Look look = Look::kPlain;
  std::size_t phase = 0;  // of kPhase
};
using Line = std::vector<Piece>;

/// A stacked bar: a letter and a colour for each phase.
Line bar_of(const telemetry::PhaseSeconds& shares, std::size_t width);

/// The first `width` columns, without any style.
std::string plain(const Line& line, std::size_t width);

/// For a terminal without colours: only a chosen line is inverse.
std::string uncoloured(const Line& line, std::size_t width);

/// With colours; a chosen line is inverse over its whole width.
std::string coloured(const Line& line, std::size_t width);

}  // namespace paceline::cli
