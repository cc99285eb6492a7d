// SPDX-License-Identifier: Apache-2.0
#include "cli/top/frame.hpp"

#include <algorithm>
#include <cmath>

#include "cli/explain/sentences.hpp"
#include "cli/top/columns.hpp"
#include "cli/watch/phases.hpp"
#include "cli/watch/text.hpp"
#include "common/base/duration.hpp"

namespace paceline::cli {
namespace {

constexpr std::size_t kJobHead = 7;  // lines above the ranks of a job
constexpr std::size_t kFoot = 2;

Line line_of(std::string text, Look look = Look::kPlain) { return {{std::move(text), look}}; }

std::string count(std::size_t number, const char* one) {
  return std::to_string(number) + " " + one + (number == 1 ? "" : "s");
}

/// Names with the namespace, if the jobs are of several.
bool several_namespaces(const JobList& jobs) {
  return std::ranges::any_of(jobs, [&](const auto& entry) {
    return entry->facts.name_space != jobs.front()->facts.name_space;
  });
}

std::string label_of(const JobFacts& facts, bool with_namespace) {
  return with_namespace ? facts.name_space + "/" + facts.name : facts.name;
}

std::size_t longest_name(const JobList& jobs, bool with_namespace) {
  std::size_t longest = 0;
  for (const auto& entry : jobs)
    longest = std::max(longest, columns_of(label_of(entry->facts, with_namespace)));
  return longest;
}

/// "" while all is well.
std::string trouble_of(const SourceHealth& health, WallTime now) {
  if (health.trouble.empty()) return "";
  if (!health.filled) return "no answer yet: " + health.trouble;
  const auto age = std::chrono::floor<std::chrono::seconds>(
      std::max(now - health.seen, WallTime::duration::zero()));
  return "as of " + format_duration(age) + " ago: " + health.trouble;
}

/// What is most worth a line: the first finding, else what the operator says.
std::string remark_of(const JobFacts& facts) {
  if (!facts.findings.empty()) return facts.findings.front().text;
  return facts.phase == "Running" || facts.phase == "Succeeded" ? "" : facts.message;
}

Line title_of(const TopState& state, const TopView& view, WallTime now) {
  const std::string trouble = trouble_of(view.health, now);
  std::string text = count(view.total, "job") + ", " + view.where;
  if (!state.filter.empty() || state.typing)
    text += ", " + std::to_string(view.jobs.size()) + " match " + clean(state.filter) +
            (state.typing ? "_" : "");
  if (state.sort != Sort::kName) text += ", by " + std::string(to_string(state.sort));
  Line line = line_of(text + "  ", Look::kBold);
  if (!trouble.empty()) line.push_back({trouble, Look::kAlarm});
  return line;
}

void append(std::vector<Line>& lines, Line line) { lines.push_back(std::move(line)); }

void pad(std::vector<Line>& lines, std::size_t height) {
  while (lines.size() < height) lines.push_back(line_of(""));
}

std::vector<Line> jobs_frame(const TopState& state, const TopView& view, Size size, WallTime now) {
  std::vector<Line> lines{title_of(state, view, now)};
  const bool spaces = !view.jobs.empty() && several_namespaces(view.jobs);
  const JobColumns columns = job_columns(size.width, longest_name(view.jobs, spaces));
  append(lines, job_head(columns));
  const std::size_t rows = rows_of(state, size);
  const std::size_t end = std::min(view.jobs.size(), state.first + rows);
  for (std::size_t i = state.first; i < end; ++i) {
    const JobFacts& facts = view.jobs[i]->facts;
    Line line = job_row(facts, label_of(facts, spaces), columns);
    if (i == state.row) line.front().look = Look::kChosen;
    append(lines, std::move(line));
  }
  if (view.jobs.empty())
    append(lines, line_of(!view.health.filled ? "  waiting for an answer …"
                          : view.total > 0    ? "  no job matches"
                                              : "  no jobs"));
  pad(lines, size.height - kFoot);
  const bool chosen = state.row < view.jobs.size();
  append(lines, line_of(chosen ? remark_of(view.jobs[state.row]->facts) : "", Look::kAlarm));
  append(lines, line_of("enter: job  /: filter  sort: n t s g f  ?: help  q: quit", Look::kSoft));
  return lines;
}

std::string speed_of(const JobFacts& facts) {
  std::string text = "step " + std::to_string(facts.step) + "  p50 " + seconds_text(facts.p50) +
                     "  p95 " + seconds_text(facts.p95) + "  " +
                     short_number(facts.samples_per_second) + " samples/s";
  if (facts.mfu) text += "  MFU " + percent(*facts.mfu);
  if (facts.goodput) text += "  goodput " + percent(facts.goodput->ratio);
  if (facts.tokens_per_second) text += "  " + short_number(*facts.tokens_per_second) + " tokens/s";
  if (facts.restarts > 0) text += "  " + count(static_cast<std::size_t>(facts.restarts), "restart");
  return text;
}

std::vector<Line> job_head_lines(const TopView& view, Size size, WallTime now) {
  const JobFacts& facts = view.looked.facts;
  const std::string trouble = trouble_of(view.health, now);
  Line title = line_of((facts.name_space.empty() ? "" : facts.name_space + "/") + facts.name +
                           "  " + facts.phase + "  ",
                       Look::kBold);
  const std::string gap = !trouble.empty()        ? trouble
                          : !view.looked.answered ? "asking rank 0 …"
                                                  : view.looked.gap;
  title.push_back({gap, trouble.empty() ? Look::kSoft : Look::kAlarm});
  std::vector<Line> lines{std::move(title), line_of(speed_of(facts))};
  Line bar = line_of("job    ");
  for (Piece& piece : bar_of(facts.shares, std::min<std::size_t>(size.width - 8, 100)))
    bar.push_back(std::move(piece));
  append(lines, std::move(bar));
  if (facts.device) {
    Line device = line_of("device ");
    for (Piece& piece : bar_of(facts.device->shares, std::min<std::size_t>(size.width - 8, 100)))
      device.push_back(std::move(piece));
    append(lines, std::move(device));
  } else {
    append(lines, line_of(facts.bottleneck.empty() ? "" : "limited by " + facts.bottleneck));
  }
  append(lines, legend_line(facts.shares));
  append(lines, line_of(remark_of(facts), Look::kAlarm));
  return lines;
}

std::vector<Line> job_frame(const TopState& state, const TopView& view, Size size, WallTime now) {
  std::vector<Line> lines = job_head_lines(view, size, now);
  const JobFacts& facts = view.looked.facts;
  append(lines, rank_head(size.width));
  const auto spread = spread_of(facts);
  const std::size_t end = std::min(facts.rank_rows.size(), state.first_rank + rows_of(state, size));
  for (std::size_t i = state.first_rank; i < end; ++i) {
    const RankFact& rank = facts.rank_rows[i];
    const bool slowest = spread && spread->ratio > 1.05 && spread->rank == rank.rank;
    Line line = rank_row(rank, slowest, size.width);
    if (i == state.rank) line.front().look = Look::kChosen;
    append(lines, std::move(line));
  }
  pad(lines, size.height - 1);
  append(lines, line_of("enter: rank  esc: back  *: the slowest rank  q: quit", Look::kSoft));
  return lines;
}

std::vector<Line> rank_frame(const TopState& state, const TopView& view, Size size) {
  const JobFacts& facts = view.looked.facts;
  if (state.rank >= facts.rank_rows.size()) return {line_of("this rank is gone; esc goes back")};
  const RankFact& rank = facts.rank_rows[state.rank];
  std::vector<Line> lines;
  std::string node;
  if (static_cast<std::size_t>(std::max(0, rank.node_rank)) < facts.nodes.size())
    node = " on " + facts.nodes[static_cast<std::size_t>(std::max(0, rank.node_rank))];
  append(lines, line_of(facts.name + "  rank " + std::to_string(rank.rank) + "  node rank " +
                            std::to_string(rank.node_rank) + node,
                        Look::kBold));
  append(lines, line_of("step " + std::to_string(rank.step) + "  p50 " + seconds_text(rank.p50) +
                        "  p95 " + seconds_text(rank.p95) + "  " + rate(rank.samples_per_second) +
                        " samples/s"));
  append(lines, line_of(""));
  append(lines, line_of(left("PHASE", 18) + right("RANK", 8) + right("JOB", 8) +
                            (rank.device ? right("DEVICE", 8) : ""),
                        Look::kBold));
  for (std::size_t phase = 0; phase < telemetry::kPhases; ++phase) {
    const double device = rank.device ? rank.device->shares[phase] : 0;
    if (rank.shares[phase] <= 0 && facts.shares[phase] <= 0 && device <= 0) continue;
    Line line =
        line_of(left(phase_looks()[phase].name, 18) + right(percent(rank.shares[phase]), 8) +
                right(percent(facts.shares[phase]), 8) +
                (rank.device ? right(percent(device), 8) : "") + "  ");
    const auto cells = static_cast<std::size_t>(std::lround(rank.shares[phase] * 40));
    line.push_back({std::string(cells, phase_looks()[phase].letter), Look::kPhase, phase});
    append(lines, std::move(line));
  }
  append(lines, line_of(""));
  for (const Finding& finding : facts.findings) {
    if (finding.rank != rank.rank) continue;
    append(lines, line_of(finding.text, Look::kAlarm));
    append(lines, line_of(finding.advice));
  }
  pad(lines, size.height - 1);
  append(lines, line_of("up, down: other ranks  esc: back  q: quit", Look::kSoft));
  return lines;
}

std::vector<Line> help_frame() {
  std::vector<Line> lines;
  for (const char* text :
       {"Keys", "  up, down, j, k, page up, page down, home, end   choose",
        "  enter, right   look at a job, then at a rank", "  esc, left      back",
        "  /              filter by words in name, phase, bottleneck or findings",
        "  n t s g f      sort by name, step time, samples/s, goodput, findings",
        "  q, ctrl-c      quit", "", "Columns", "  P50      half of the steps take up to this",
        "  SMP/S    samples a second, of all ranks",
        "  GOOD     goodput: share of the time that went into steps that count",
        "  MFU      share of the accelerators' arithmetic",
        "  LIMIT    what takes most of a step beside computing", "  !        there is a finding",
        "", "Letters of the bar"})
    append(lines, line_of(text));
  Line letters = line_of("  ");
  for (std::size_t phase = 0; phase < telemetry::kPhases; ++phase) {
    if (phase == 8) {
      append(lines, std::move(letters));
      letters = line_of("  ");
    }
    letters.push_back({std::string(1, phase_looks()[phase].letter), Look::kPhase, phase});
    letters.push_back({" " + std::string(phase_looks()[phase].name) + "  "});
  }
  append(lines, std::move(letters));
  return lines;
}

}  // namespace

std::size_t rows_of(const TopState& state, Size size) {
  const std::size_t taken = state.level == Level::kJob ? kJobHead + 1 : 2 + kFoot;
  return size.height > taken ? size.height - taken : 1;
}

std::vector<Line> frame(const TopState& state, const TopView& view, Size size, WallTime now) {
  size.width = std::max<std::size_t>(size.width, 20);
  size.height = std::max<std::size_t>(size.height, 6);
  std::vector<Line> lines;
  switch (state.level) {
    case Level::kJobs: lines = jobs_frame(state, view, size, now); break;
    case Level::kJob: lines = job_frame(state, view, size, now); break;
    case Level::kRank: lines = rank_frame(state, view, size); break;
    case Level::kHelp: lines = help_frame(); break;
  }
  if (lines.size() > size.height) lines.resize(size.height);
  return lines;
}

std::vector<Line> listing(const TopView& view, std::size_t width, WallTime now) {
  std::vector<Line> lines;
  if (const std::string trouble = trouble_of(view.health, now); !trouble.empty())
    lines.push_back(line_of(trouble, Look::kAlarm));
  const bool spaces = !view.jobs.empty() && several_namespaces(view.jobs);
  const JobColumns columns = job_columns(width, longest_name(view.jobs, spaces));
  append(lines, job_head(columns));
  for (const auto& entry : view.jobs) {
    append(lines, job_row(entry->facts, label_of(entry->facts, spaces), columns));
    if (const std::string remark = remark_of(entry->facts); !remark.empty())
      append(lines, line_of("  " + remark));
  }
  return lines;
}

}  // namespace paceline::cli
