// SPDX-License-Identifier: Apache-2.0
#include "cli/top/line.hpp"

#include <algorithm>

#include "cli/watch/phases.hpp"
#include "cli/watch/text.hpp"

namespace paceline::cli {
namespace {

std::string code_of(const Piece& piece) {
  switch (piece.look) {
    case Look::kPlain: return "";
    case Look::kBold: return "\x1b[1m";
    case Look::kSoft: return "\x1b[2m";
    case Look::kAlarm: return "\x1b[1;31m";
    case Look::kGood: return "\x1b[32m";
    case Look::kChosen: return "\x1b[7m";
    case Look::kPhase: break;
  }
  const int colour = phase_looks()[piece.phase].terminal;
  // Black letters on light colours, white ones on dark.
  const bool dark = colour == 26 || colour == 160 || colour == 240 || colour == 33 ||
                    colour == 32 || colour == 134;
  return "\x1b[48;5;" + std::to_string(colour) + ";38;5;" + (dark ? "231" : "16") + "m";
}

}  // namespace

Line bar_of(const telemetry::PhaseSeconds& shares, std::size_t width) {
  Line line;
  if (telemetry::sum(shares) <= 0) return {{std::string(width, ' ')}};
  const std::vector<std::size_t> cells = bar_cells(shares, width);
  for (std::size_t at = 0; at < cells.size();) {
    std::size_t end = at;
    while (end < cells.size() && cells[end] == cells[at]) ++end;
    if (cells[at] < telemetry::kPhases) {
      line.push_back(
          {std::string(end - at, phase_looks()[cells[at]].letter), Look::kPhase, cells[at]});
    } else {
      line.push_back({std::string(end - at, '.'), Look::kSoft});
    }
    at = end;
  }
  return line;
}

std::string plain(const Line& line, std::size_t width) {
  std::string text;
  for (const Piece& piece : line) text += piece.text;
  text = cut(text, width);
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

std::string uncoloured(const Line& line, std::size_t width) {
  std::string text = plain(line, width);
  if (!line.empty() && line.front().look == Look::kChosen)
    return "\x1b[7m" + left(text, width) + "\x1b[0m";
  return text;
}

std::string coloured(const Line& line, std::size_t width) {
  std::string text;
  std::size_t used = 0;
  const bool chosen = !line.empty() && line.front().look == Look::kChosen;
  for (const Piece& piece : line) {
    const std::string part = cut(piece.text, width - used);
    used += columns_of(part);
    const std::string code = code_of(piece);
    const std::string under = chosen && piece.look != Look::kPhase ? "\x1b[7m" : "";
    text += under + (code == under ? "" : code) + part + "\x1b[0m";
    if (used >= width) break;
  }
  if (chosen && used < width) text += "\x1b[7m" + std::string(width - used, ' ') + "\x1b[0m";
  return text;
}

}  // namespace paceline::cli
