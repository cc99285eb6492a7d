// SPDX-License-Identifier: Apache-2.0
#include "cli/run/view.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string_view>

#include "common/base/duration.hpp"

namespace paceline::cli {
namespace {

using nlohmann::json;
using telemetry::kPhases;

constexpr double kWorthAColumn = 0.005;
constexpr std::size_t kMostRows = 16;

double number(const json& object, const char* key) {
  if (!object.is_object()) return 0;
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

int whole(const json& object, const char* key) { return static_cast<int>(number(object, key)); }

std::string text(const json& object, const char* key) {
  if (!object.is_object()) return "";
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

const json& part(const json& object, const char* key) {
  static const json kNothing;
  if (!object.is_object()) return kNothing;
  const auto found = object.find(key);
  return found == object.end() ? kNothing : *found;
}

telemetry::PhaseSeconds read_shares(const json& object) {
  telemetry::PhaseSeconds shares{};
  for (std::size_t phase = 0; phase < kPhases; ++phase)
    shares[phase] = number(object, std::string(telemetry::phase_name(phase)).c_str());
  return shares;
}

std::string seconds_text(double seconds) {
  return seconds <= 0
             ? "-"
             : format_duration(std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9)));
}

std::string percent(double share) {
  std::array<char, 16> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.1f%%", share * 100);
  return buffer.data();
}

std::string rate(double value) {
  std::array<char, 32> buffer{};
  std::snprintf(buffer.data(), buffer.size(), value < 100 ? "%.1f" : "%.0f", value);
  return buffer.data();
}

std::string right(const std::string& value, std::size_t width) {
  return value.size() >= width ? value : std::string(width - value.size(), ' ') + value;
}

std::string_view short_name(std::size_t phase) {
  switch (phase) {
    case PACELINE_PHASE_DATA_WAIT: return "data";
    case PACELINE_PHASE_COMM_EXPOSED: return "comm";
    case PACELINE_PHASE_OPTIMIZER: return "optim";
    case PACELINE_PHASE_CHECKPOINT: return "ckpt";
    case PACELINE_PHASE_EVALUATION: return "eval";
    case PACELINE_PHASE_UNATTRIBUTED: return "unattr";
    default: return telemetry::phase_name(phase);
  }
}

telemetry::SettledSteps read_settled(const json& settled) {
  return {static_cast<std::uint64_t>(number(settled, "steps")), number(settled, "seconds")};
}

}  // namespace

JobView read_view(const json& document) {
  JobView view;
  view.phase = text(document, "phase");
  if (view.phase.empty()) view.phase = text(document, "verdict");
  view.attempt = whole(document, "attempt");
  view.restarts = whole(document, "restarts");
  view.message = text(document, "message");
  const json& culprit = part(document, "culprit");
  if (culprit.is_object() && part(culprit, "exitCode").is_number())
    view.culprit_exit_code = whole(culprit, "exitCode");
  if (culprit.is_object() && part(culprit, "signal").is_number())
    view.culprit_signal = whole(culprit, "signal");
  const json& training = part(document, "training");
  view.step = static_cast<std::uint64_t>(number(training, "step"));
  view.steps = static_cast<std::uint64_t>(number(training, "steps"));
  view.samples_per_second = number(training, "samplesPerSecond");
  view.p50 = number(part(training, "stepSeconds"), "p50");
  view.p95 = number(part(training, "stepSeconds"), "p95");
  view.shares = read_shares(part(training, "breakdown"));
  if (const std::string bottleneck = text(training, "bottleneck"); !bottleneck.empty())
    view.bottleneck = bottleneck;
  if (part(training, "slowestRank").is_number()) view.slowest_rank = whole(training, "slowestRank");
  for (const json& rank : part(training, "ranks")) {
    view.ranks.push_back(
        {whole(rank, "rank"), whole(rank, "nodeRank"),
         static_cast<std::uint64_t>(number(rank, "step")), number(part(rank, "stepSeconds"), "p50"),
         number(part(rank, "stepSeconds"), "p95"), number(rank, "samplesPerSecond"),
         read_shares(part(rank, "breakdown")), read_settled(part(rank, "settled"))});
  }
  return view;
}

std::vector<std::string> live_table(const std::string& job, const JobView& view,
                                    std::size_t width) {
  std::vector<std::string> lines;
  lines.push_back(job + "  " + view.phase + "  step " + std::to_string(view.step) + "  " +
                  rate(view.samples_per_second) + " samples/s  bottleneck " + view.bottleneck +
                  "  restarts " + std::to_string(view.restarts));
  std::vector<std::size_t> columns;
  for (std::size_t phase = 0; phase < kPhases; ++phase) {
    const bool shown = view.shares[phase] >= kWorthAColumn ||
                       std::any_of(view.ranks.begin(), view.ranks.end(), [&](const RankRow& row) {
                         return row.shares[phase] >= kWorthAColumn;
                       });
    if (shown) columns.push_back(phase);
  }
  if (!view.ranks.empty()) {
    std::string head = "  rank    step     p50     p95";
    for (const std::size_t phase : columns) head += "  " + right(std::string(short_name(phase)), 6);
    lines.push_back(head);
  }
  for (std::size_t i = 0; i < std::min(view.ranks.size(), kMostRows); ++i) {
    const RankRow& row = view.ranks[i];
    std::string line = std::string(view.slowest_rank == row.rank ? " *" : "  ") +
                       right(std::to_string(row.rank), 4) + right(std::to_string(row.step), 8) +
                       right(seconds_text(row.p50), 8) + right(seconds_text(row.p95), 8);
    for (const std::size_t phase : columns)
      line += "  " +
              right(percent(row.shares[phase]), std::max<std::size_t>(6, short_name(phase).size()));
    lines.push_back(line);
  }
  if (view.ranks.size() > kMostRows)
    lines.push_back("  … and " + std::to_string(view.ranks.size() - kMostRows) + " more ranks");
  for (std::string& line : lines) {
    if (line.size() > width) line.resize(width);
  }
  return lines;
}

std::string live_line(const JobView& view) {
  std::string line = view.phase + ": step " + std::to_string(view.step) + ", " +
                     seconds_text(view.p50) + " per step, " + rate(view.samples_per_second) +
                     " samples/s";
  std::vector<std::size_t> phases;
  for (std::size_t phase = 0; phase < kPhases; ++phase) {
    if (view.shares[phase] >= 0.05) phases.push_back(phase);
  }
  std::sort(phases.begin(), phases.end(),
            [&](std::size_t a, std::size_t b) { return view.shares[a] > view.shares[b]; });
  for (const std::size_t phase : phases)
    line += ", " + std::string(telemetry::phase_name(phase)) + " " + percent(view.shares[phase]);
  return line;
}

std::string final_table(const std::string& job, const JobView& view, double seconds) {
  std::string table;
  const auto row = [&](const std::string& name, const std::string& value) {
    table += "  " + name + std::string(name.size() < 20 ? 20 - name.size() : 1, ' ') + value + "\n";
  };
  table += "\n" + job + ": " + view.phase +
           (view.message.empty() ? "" : " (" + view.message + ")") + "\n";
  row("time", seconds_text(seconds));
  row("restarts", std::to_string(view.restarts));
  row("steps", std::to_string(view.steps));
  if (view.steps == 0) {
    row("breakdown", "no training step was seen");
    return table;
  }
  row("samples/s", rate(view.samples_per_second));
  row("step time", "p50 " + seconds_text(view.p50) + ", p95 " + seconds_text(view.p95));
  row("bottleneck", view.bottleneck);
  if (view.slowest_rank) row("slowest rank", std::to_string(*view.slowest_rank));
  table += "  share of each phase\n";
  for (std::size_t phase = 0; phase < kPhases; ++phase) {
    if (view.shares[phase] <= 0) continue;
    const auto bar = static_cast<std::size_t>(std::lround(view.shares[phase] * 40));
    std::string name(telemetry::phase_name(phase));
    name.resize(std::max<std::size_t>(name.size(), 18), ' ');
    table +=
        "    " + name + right(percent(view.shares[phase]), 6) + "  " + std::string(bar, '#') + "\n";
  }
  if (!view.acted.empty()) table += "  acceleration of rank 0\n";
  for (const std::string& line : view.acted) table += "    " + line + "\n";
  return table;
}

}  // namespace paceline::cli
