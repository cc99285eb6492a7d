// SPDX-License-Identifier: Apache-2.0
#include "cli/report/page.hpp"

#include <algorithm>
#include <array>

#include "cli/explain/sentences.hpp"
#include "cli/report/markup.hpp"
#include "cli/report/plots.hpp"
#include "cli/watch/text.hpp"
#include "common/base/duration.hpp"
#include "common/base/timestamp.hpp"

namespace paceline::cli {
namespace {

// More bars are not read; the slowest are shown.
constexpr std::size_t kMostBars = 64;

constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --ink: #1c2128; --soft: #626c78; --line: #d5dae0; --page: #fff;
  --box: #f5f7f9; --alarm: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e3e8ee; --soft: #98a2ae; --line: #39424d;
  --page: #14181d; --box: #1d232a; --alarm: #ff8a80; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page);
  max-width: 880px; margin: 2em auto; padding: 0 1em; overflow-wrap: break-word; }
h1 { font-size: 1.5em; margin: 0; } h2 { font-size: 1.1em; margin: 2em 0 .5em; }
p { margin: .3em 0; } .soft { color: var(--soft); }
.tiles { display: flex; flex-wrap: wrap; gap: 8px; margin: 1em 0; }
.tile { background: var(--box); border-radius: 6px; padding: 8px 14px; }
.tile b { display: block; font-size: 1.25em; font-weight: 600; }
svg { display: block; width: 100%; height: auto; } svg text { font-size: 12px; fill: var(--ink); }
.grid { stroke: var(--line); } .line { fill: none; stroke: #2f7ed8; stroke-width: 1.5; }
.legend { margin: .6em 0; } .key { margin-right: 1.2em; white-space: nowrap; }
.key svg { display: inline-block; width: 10px; height: 10px; margin-right: 5px; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: 3px 10px 3px 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
td:last-child { overflow-wrap: anywhere; }
.n { text-align: right; font-variant-numeric: tabular-nums; }
.finding { background: var(--box); border-left: 4px solid var(--alarm); padding: 8px 14px;
  margin: 8px 0; }
.foot { margin-top: 2em; } pre { background: var(--box); padding: 10px; overflow-x: auto; font-size: 12px; }
)";

std::string heading(const std::string& text) { return "<h2>" + escaped(text) + "</h2>\n"; }

std::string tiles_part(const JobFacts& facts) {
  std::string text;
  const auto tile = [&](const std::string& value, const std::string& name) {
    text += "<div class=\"tile\"><b>" + escaped(value) + "</b>" + escaped(name) + "</div>\n";
  };
  tile(facts.phase.empty() ? "unknown" : facts.phase, "phase");
  if (facts.ranks > 0) tile(std::to_string(facts.ranks), "ranks");
  if (facts.step > 0) tile(std::to_string(facts.step), "step");
  if (facts.p50 > 0) tile(seconds_text(facts.p50), "step time p50");
  if (facts.p95 > 0) tile(seconds_text(facts.p95), "step time p95");
  if (facts.samples_per_second > 0) tile(short_number(facts.samples_per_second), "samples/s");
  if (facts.tokens_per_second) tile(short_number(*facts.tokens_per_second), "tokens/s");
  if (facts.mfu) tile(percent(*facts.mfu), "MFU");
  if (facts.goodput) tile(percent(facts.goodput->ratio), "goodput");
  if (!facts.bottleneck.empty()) tile(facts.bottleneck, "bottleneck");
  tile(std::to_string(facts.restarts), "restarts");
  return "<div class=\"tiles\">\n" + text + "</div>\n";
}

std::string findings_part(const JobFacts& facts) {
  if (facts.findings.empty()) return "";
  std::string text = heading("Findings");
  for (const Finding& finding : facts.findings) {
    std::string head = finding.kind;
    if (finding.rank) head += ", rank " + std::to_string(*finding.rank);
    if (!finding.node.empty()) head += ", node " + finding.node;
    if (finding.since) head += ", since " + format_time(*finding.since);
    text += "<div class=\"finding\"><p class=\"soft\">" + escaped(head) + "</p><p>" +
            escaped(finding.text) + "</p>";
    if (!finding.advice.empty()) text += "<p><b>" + escaped(finding.advice) + "</b></p>";
    if (finding.gain)
      text +=
          "<p>Expected: " + escaped(gain_text(finding.gain->first, finding.gain->second)) + ".</p>";
    text += "</div>\n";
  }
  return text;
}

std::string history_part(const JobFacts& facts) {
  const std::string plot = history_plot(facts.history);
  return plot.empty() ? "" : heading("Step time over time") + plot;
}

std::string breakdown_part(const JobFacts& facts) {
  std::vector<BarRow> rows;
  if (telemetry::sum(facts.shares) > 0)
    rows.push_back({"job", seconds_text(facts.p50), phase_parts(facts.shares)});
  if (facts.device) rows.push_back({"job, device", "", phase_parts(facts.device->shares)});
  std::vector<RankFact> ranks = facts.rank_rows;
  if (ranks.size() > kMostBars) {
    std::ranges::stable_sort(ranks, std::greater<>(), &RankFact::p50);
    ranks.resize(kMostBars);
  }
  for (const RankFact& rank : ranks) {
    const std::string name = "rank " + std::to_string(rank.rank);
    rows.push_back({name, seconds_text(rank.p50), phase_parts(rank.shares)});
    if (rank.device) rows.push_back({name + ", device", "", phase_parts(rank.device->shares)});
  }
  if (rows.empty()) return "";
  std::string text = heading("Where a step goes") + stacked_bars(rows) + legend(rows);
  if (facts.rank_rows.size() > kMostBars)
    text += "<p class=\"soft\">The " + std::to_string(kMostBars) + " slowest of " +
            std::to_string(facts.rank_rows.size()) + " ranks are shown.</p>\n";
  if (facts.rank_rows.empty())
    text += "<p class=\"soft\">Only the status of the job was at hand, which has no ranks.</p>\n";
  return text;
}

std::string goodput_part(const JobFacts& facts) {
  if (!facts.goodput || facts.goodput->seconds <= 0) return "";
  constexpr std::array<std::string_view, 7> kColours{"#c62f3b", "#e8762d", "#9b59b6", "#b5a642",
                                                     "#4fb0ae", "#8a8a8a", "#1b4f9c"};
  const GoodputFact& goodput = *facts.goodput;
  BarRow row{"wall time", seconds_text(goodput.seconds), {}};
  row.parts.push_back({"steps that count", goodput.ratio, "#5aa352"});
  std::vector<std::vector<std::string>> table;
  for (std::size_t i = 0; i < goodput.losses.size(); ++i) {
    const auto& [loss, seconds] = goodput.losses[i];
    const double share = seconds / goodput.seconds;
    row.parts.push_back({loss_name(loss), share, std::string(kColours[i % kColours.size()])});
    table.push_back({loss_name(loss), seconds_text(seconds), percent(share)});
  }
  return heading("Where the time since the first start went") + stacked_bars({row}) +
         legend({row}) + (table.empty() ? "" : html_table({"lost by", "time", "share"}, table, 1));
}

std::string effects_part(const JobFacts& facts) {
  std::string text;
  if (!facts.effects.empty()) {
    std::vector<std::vector<std::string>> rows;
    for (const EffectFact& effect : facts.effects)
      rows.push_back({effect.feature,
                      effect.kept   ? "acts"
                      : effect.gain ? "tried, taken back"
                                    : "does not act",
                      effect.gain ? gain_text(*effect.gain, *effect.gain) : "", effect.reason});
    text += heading("What acceleration does") +
            html_table({"feature", "state", "measured", "reason"}, rows);
  }
  if (!facts.settings.empty()) {
    std::vector<std::vector<std::string>> rows;
    for (const auto& [name, value] : facts.settings) rows.push_back({name, value});
    text += heading("Settings of acceleration") + html_table({"setting", "value"}, rows);
  }
  return text;
}

std::string words_part(const JobFacts& facts, WallTime now) {
  std::string text;
  for (const Section& section : explain(facts, now)) {
    // These have plots and tables of their own.
    if (section.title == "Findings" || section.title == "Goodput" ||
        section.title == "Acceleration")
      continue;
    text += heading(section.title);
    for (const std::string& sentence : section.sentences) {
      if (!sentence.starts_with("  | ")) text += "<p>" + escaped(sentence) + "</p>\n";
    }
  }
  if (facts.culprit && !facts.culprit->last_lines.empty()) {
    text += heading("Last lines of the rank that failed") + "<pre>";
    for (const std::string& line : facts.culprit->last_lines) text += escaped(line) + "\n";
    text += "</pre>\n";
  }
  return text;
}

}  // namespace

std::string report_page(const JobFacts& facts, WallTime now) {
  const std::string title = facts.name.empty() ? "Training job" : facts.name;
  std::string text =
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
      "style-src 'unsafe-inline'\">\n<title>" +
      escaped(title) + " – Paceline</title>\n<style>" + std::string(kStyle) +
      "</style>\n</head>\n<body>\n<h1>" + escaped(title) + "</h1>\n<p class=\"soft\">";
  if (!facts.name_space.empty()) text += "namespace " + escaped(facts.name_space) + ", ";
  text += "as of " + format_time(now) + "</p>\n";
  text += tiles_part(facts) + findings_part(facts) + words_part(facts, now) + history_part(facts) +
          breakdown_part(facts) + goodput_part(facts) + effects_part(facts);
  return text + "<p class=\"soft foot\">Made by paceline " PACELINE_VERSION
                ".</p>\n</body>\n</html>\n";
}

}  // namespace paceline::cli
