// SPDX-License-Identifier: Apache-2.0
#include "cli/report/plots.hpp"

#include <algorithm>
#include <cmath>

#include "cli/report/markup.hpp"
#include "cli/watch/phases.hpp"
#include "cli/watch/text.hpp"
#include "common/base/duration.hpp"

namespace paceline::cli {
namespace {

constexpr double kWidth = 860;
constexpr double kLabel = 110;  // left of the bars
constexpr double kValue = 90;   // right of them
constexpr double kRow = 22;
constexpr double kBar = 16;

std::string text_at(double x, double y, std::string_view anchor, const std::string& text) {
  return "<text x=\"" + coordinate(x) + "\" y=\"" + coordinate(y) + "\" text-anchor=\"" +
         std::string(anchor) + "\">" + escaped(text) + "</text>\n";
}

std::string line_at(double x1, double y1, double x2, double y2) {
  return "<line class=\"grid\" x1=\"" + coordinate(x1) + "\" y1=\"" + coordinate(y1) + "\" x2=\"" +
         coordinate(x2) + "\" y2=\"" + coordinate(y2) + "\"/>\n";
}

std::string svg(double height, const std::string& label, const std::string& content) {
  return "<svg viewBox=\"0 0 " + coordinate(kWidth) + " " + coordinate(height) +
         "\" role=\"img\" aria-label=\"" + escaped(label) + "\">\n" + content + "</svg>\n";
}

/// 1, 2 or 5 times a power of ten, so that about four lines fit below `most`.
double spacing(double most) {
  const double rough = most / 4;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double step : {1.0, 2.0, 5.0}) {
    if (rough <= step * power) return step * power;
  }
  return 10 * power;
}

}  // namespace

std::vector<BarPart> phase_parts(const telemetry::PhaseSeconds& shares) {
  std::vector<BarPart> parts;
  for (std::size_t phase = 0; phase < telemetry::kPhases; ++phase) {
    const PhaseLook& look = phase_looks()[phase];
    if (shares[phase] > 0)
      parts.push_back({std::string(look.name), shares[phase], std::string(look.colour)});
  }
  return parts;
}

std::string stacked_bars(const std::vector<BarRow>& rows) {
  if (rows.empty()) return "";
  const double length = kWidth - kLabel - kValue;
  std::string content;
  double y = 0;
  for (const BarRow& row : rows) {
    content += text_at(kLabel - 8, y + 13, "end", cut(row.label, 16));
    double x = kLabel;
    for (const BarPart& part : row.parts) {
      const double width = std::clamp(part.share, 0.0, 1.0) * length;
      content += "<rect x=\"" + coordinate(x) + "\" y=\"" + coordinate(y) + "\" width=\"" +
                 coordinate(std::min(width, kLabel + length - x)) + "\" height=\"" +
                 coordinate(kBar) + "\" fill=\"" + escaped(part.colour) + "\"><title>" +
                 escaped(row.label + ": " + part.name + " " + percent(part.share)) +
                 "</title></rect>\n";
      x = std::min(x + width, kLabel + length);
    }
    content += text_at(kWidth - kValue + 8, y + 13, "start", row.value);
    y += kRow;
  }
  return svg(y, "stacked bars", content);
}

std::string legend(const std::vector<BarRow>& rows) {
  std::string text;
  std::vector<std::string> seen;
  for (const BarRow& row : rows) {
    for (const BarPart& part : row.parts) {
      if (std::ranges::find(seen, part.name) != seen.end()) continue;
      seen.push_back(part.name);
      text +=
          "<span class=\"key\"><svg viewBox=\"0 0 10 10\"><rect width=\"10\" height=\"10\" "
          "fill=\"" +
          escaped(part.colour) + "\"/></svg>" + escaped(part.name) + "</span>\n";
    }
  }
  return text.empty() ? "" : "<p class=\"legend\">" + text + "</p>\n";
}

std::string history_plot(const std::vector<HistoryPoint>& history) {
  if (history.size() < 2 || history.back().at <= history.front().at) return "";
  constexpr double kHeight = 240;
  constexpr double kFoot = 24;
  constexpr double kHead = 12;
  constexpr double kLeft = 70;
  const double most =
      std::ranges::max_element(history, {}, &HistoryPoint::step_seconds)->step_seconds;
  if (most <= 0) return "";
  const double first = history.front().at;
  const double span = history.back().at - first;
  const double step = spacing(most);
  const double top = std::ceil(most / step) * step;
  const auto x_of = [&](double at) { return kLeft + (at - first) / span * (kWidth - kLeft - 10); };
  const auto y_of = [&](double seconds) {
    return kHead + (1 - seconds / top) * (kHeight - kFoot - kHead);
  };
  std::string content;
  for (int i = 0; i * step <= top * 1.001; ++i) {
    const double value = i * step;
    content += line_at(kLeft, y_of(value), kWidth - 10, y_of(value));
    content += text_at(kLeft - 8, y_of(value) + 4, "end", i == 0 ? "0" : seconds_text(value));
  }
  for (int i = 0; i <= 4; ++i) {
    const double at = span * i / 4;
    content += text_at(x_of(first + at), kHeight - 4,
                       i == 0   ? "start"
                       : i == 4 ? "end"
                                : "middle",
                       i == 0 ? "start" : "+" + seconds_text(at));
  }
  std::string points;
  for (const HistoryPoint& point : history)
    points += coordinate(x_of(point.at)) + "," + coordinate(y_of(point.step_seconds)) + " ";
  content += "<polyline class=\"line\" points=\"" + points + "\"/>\n";
  return svg(kHeight, "step time over time", content);
}

}  // namespace paceline::cli
