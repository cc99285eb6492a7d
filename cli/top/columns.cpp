// SPDX-License-Identifier: Apache-2.0
#include "cli/top/columns.hpp"

#include <algorithm>
#include <cmath>

#include "cli/watch/phases.hpp"
#include "cli/watch/text.hpp"

namespace paceline::cli {
namespace {

constexpr std::size_t kFixed = 46;  // of a job's row: all columns but name, bar and the wide ones
constexpr std::size_t kWide = 12;
constexpr std::size_t kLeastBar = 12;
constexpr std::size_t kRankFixed = 35;
constexpr std::size_t kMostBar = 60;

Look look_of(const std::string& phase) {
  if (phase == "Failed") return Look::kAlarm;
  if (phase == "Running" || phase == "Succeeded") return Look::kGood;
  return Look::kPlain;
}

/// Within five columns.
std::string short_bottleneck(const std::string& name) {
  if (name == "communication") return "comm";
  if (name == "checkpoint") return "ckpt";
  if (name == "compute") return "comp";
  return name.empty() ? "-" : cut(name, 5);
}

std::string number_or_dash(double value) { return value > 0 ? short_number(value) : "-"; }

std::string whole_percent(const std::optional<double>& share) {
  return share ? std::to_string(std::lround(*share * 100)) + "%" : "-";
}

}  // namespace

JobColumns job_columns(std::size_t width, std::size_t name) {
  JobColumns columns;
  columns.wide = width >= kFixed + kWide + kLeastBar + 24;
  const std::size_t fixed = kFixed + (columns.wide ? kWide : 0);
  const std::size_t rest = width > fixed ? width - fixed : 0;
  // A name needs to be told from others more than a bar needs detail.
  columns.name =
      std::clamp<std::size_t>(name, 8, std::max<std::size_t>(8, rest - std::min(rest, kLeastBar)));
  columns.bar = std::min(kMostBar, rest > columns.name ? rest - columns.name : 0);
  return columns;
}

Line job_head(const JobColumns& columns) {
  std::string text = left("NAME", columns.name) + "  " + left("PHASE", 10) + right("RANKS", 6) +
                     right("STEP", 7) + right("P50", 7) + right("SMP/S", 6);
  if (columns.wide) text += right("GOOD", 6) + right("MFU", 6);
  return {{text + " " + left("LIMIT", 6) + " STEP BY PHASE", Look::kBold}};
}

Line job_row(const JobFacts& facts, const std::string& name, const JobColumns& columns) {
  Line line;
  line.push_back({left(name, columns.name)});
  line.push_back({facts.findings.empty() ? "  " : "! ", Look::kAlarm});
  line.push_back({left(facts.phase, 10), look_of(facts.phase)});
  std::string text =
      right(facts.ranks > 0 ? short_number(facts.ranks) : "-", 6) +
      right(facts.step > 0 ? short_number(static_cast<double>(facts.step)) : "-", 7) +
      right(seconds_text(facts.p50), 7) + right(number_or_dash(facts.samples_per_second), 6);
  if (columns.wide) {
    text += right(whole_percent(facts.goodput ? std::optional(facts.goodput->ratio) : std::nullopt),
                  6) +
            right(whole_percent(facts.mfu), 6);
  }
  line.push_back(
      {text + " " + left(facts.step > 0 ? short_bottleneck(facts.bottleneck) : "-", 6) + " "});
  const Line bar = bar_of(facts.shares, columns.bar);
  line.insert(line.end(), bar.begin(), bar.end());
  return line;
}

Line rank_head(std::size_t width) {
  return {{cut("  RANK  NODE    STEP     P50     P95  STEP BY PHASE", width), Look::kBold}};
}

Line rank_row(const RankFact& rank, bool slowest, std::size_t width) {
  Line line{{"", Look::kPlain},
            {slowest ? "*" : " ", Look::kAlarm},
            {right(std::to_string(rank.rank), 5) + right(std::to_string(rank.node_rank), 6) +
             right(short_number(static_cast<double>(rank.step)), 8) +
             right(seconds_text(rank.p50), 8) + right(seconds_text(rank.p95), 8) + "  "}};
  const Line bar =
      bar_of(rank.shares, std::min(kMostBar, width > kRankFixed + 3 ? width - kRankFixed - 3 : 0));
  line.insert(line.end(), bar.begin(), bar.end());
  return line;
}

Line legend_line(const telemetry::PhaseSeconds& shares) {
  Line line;
  for (std::size_t phase = 0; phase < telemetry::kPhases; ++phase) {
    if (shares[phase] < 0.01) continue;
    line.push_back({std::string(1, phase_looks()[phase].letter), Look::kPhase, phase});
    line.push_back({" " + std::string(phase_looks()[phase].name) + "  "});
  }
  return line;
}

}  // namespace paceline::cli
