// SPDX-License-Identifier: Apache-2.0
#include "cli/run/view.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string_view>

#include "cli/watch/lenient.hpp"
#include "cli/watch/text.hpp"

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

telemetry::PhaseSeconds read_shares(const json& object) {
  telemetry::PhaseSeconds shares{};
  for (std::size_t phase = 0; phase < kPhases; ++phase)
    shares[phase] = number(object, std::string(telemetry::phase_name(phase)).c_str());
  return shares;
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

void read_goodput(const json& goodput, JobView& view) {
  if (!lenient::member(goodput, "ratio").is_number()) return;
  view.goodput = number(goodput, "ratio");
  for (const auto& [use, seconds] : lenient::member(goodput, "losses").items()) {
    if (seconds.is_number()) view.losses.emplace_back(use, seconds.get<double>());
  }
}

/// "91.2% useful; starting 1.2s, checkpoint 500ms", the largest loss first.
std::string goodput_text(const JobView& view) {
  auto losses = view.losses;
  std::ranges::sort(losses, std::ranges::greater{}, &std::pair<std::string, double>::second);
  std::string line = percent(*view.goodput) + " useful";
  for (std::size_t i = 0; i < losses.size(); ++i)
    line += (i == 0 ? "; " : ", ") + losses[i].first + " " + seconds_text(losses[i].second);
  return line;
}

}  // namespace

JobView read_view(const json& document) {
  JobView view;
  view.phase = lenient::text(document, "phase");
  if (view.phase.empty()) view.phase = lenient::text(document, "verdict");
  view.attempt = whole(document, "attempt");
  view.restarts = whole(document, "restarts");
  view.message = lenient::text(document, "message");
  const json& culprit = lenient::member(document, "culprit");
  if (culprit.is_object() && lenient::member(culprit, "exitCode").is_number())
    view.culprit_exit_code = whole(culprit, "exitCode");
  if (culprit.is_object() && lenient::member(culprit, "signal").is_number())
    view.culprit_signal = whole(culprit, "signal");
  const json& training = lenient::member(document, "training");
  view.step = static_cast<std::uint64_t>(number(training, "step"));
  view.steps = static_cast<std::uint64_t>(number(training, "steps"));
  view.samples_per_second = number(training, "samplesPerSecond");
  view.tokens_per_second = number(training, "tokensPerSecond");
  if (lenient::member(training, "mfu").is_number()) view.mfu = number(training, "mfu");
  read_goodput(lenient::member(document, "goodput"), view);
  view.p50 = number(lenient::member(training, "stepSeconds"), "p50");
  view.p95 = number(lenient::member(training, "stepSeconds"), "p95");
  view.shares = read_shares(lenient::member(training, "breakdown"));
  if (const std::string bottleneck = lenient::text(training, "bottleneck"); !bottleneck.empty())
    view.bottleneck = bottleneck;
  if (lenient::member(training, "slowestRank").is_number())
    view.slowest_rank = whole(training, "slowestRank");
  for (const json& rank : lenient::member(training, "ranks")) {
    view.ranks.push_back({whole(rank, "rank"), whole(rank, "nodeRank"),
                          static_cast<std::uint64_t>(number(rank, "step")),
                          number(lenient::member(rank, "stepSeconds"), "p50"),
                          number(lenient::member(rank, "stepSeconds"), "p95"),
                          number(rank, "samplesPerSecond"),
                          read_shares(lenient::member(rank, "breakdown")),
                          read_settled(lenient::member(rank, "settled"))});
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
    for (const std::size_t phase : columns) {
      head += "  " + right(short_name(phase), std::max<std::size_t>(6, short_name(phase).size()));
    }
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
  if (view.tokens_per_second > 0) row("tokens/s", rate(view.tokens_per_second));
  if (view.mfu) row("MFU", percent(*view.mfu));
  if (view.goodput) row("goodput", goodput_text(view));
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
