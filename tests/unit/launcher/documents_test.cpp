// SPDX-License-Identifier: Apache-2.0
#include "launcher/summary/documents.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace paceline::summary {
namespace {

using nlohmann::json;

Ending ending(std::size_t lines, std::size_t bytes, const std::string& filling = "x") {
  rendezvous::Culprit culprit{3, 1, "pod", 2, {1, 1, std::nullopt, false, "Exit", {}}};
  for (std::size_t i = 0; i < lines; ++i) {
    std::string line = std::to_string(i) + ":";
    while (line.size() < bytes) line += filling;
    culprit.failure.last_lines.push_back(line);
  }
  return {"Failed", 2, 1, "message", culprit, "/run/report.json"};
}

TEST(TerminationMessage, FitsAndKeepsTheNewestLines) {
  const std::string text = termination_message(ending(20, 400), {}, 4096);
  EXPECT_LE(text.size(), 4096U);
  EXPECT_GT(text.size(), 3000U);
  const json document = json::parse(text);
  EXPECT_EQ(document["verdict"], "Failed");
  EXPECT_EQ(document["culprit"]["rank"], 3);
  EXPECT_EQ(document["culprit"]["exitCode"], 1);
  EXPECT_TRUE(document["culprit"]["lastLines"].back().get<std::string>().starts_with("19:"));
  EXPECT_FALSE(document["culprit"]["lastLines"].front().get<std::string>().starts_with("0:"));
}

TEST(TerminationMessage, IsAlwaysValidJsonWhateverWasLogged) {
  for (const std::string& filling :
       {std::string("\xff"), std::string("\x01"), std::string("\""), std::string("é")}) {
    auto hostile = ending(20, 400, filling);
    hostile.message = std::string(100'000, filling[0]);
    hostile.report = "";
    const std::string text = termination_message(hostile, {}, 4096);
    EXPECT_LE(text.size(), 4096U);
    EXPECT_EQ(json::parse(text)["verdict"], "Failed");
  }
}

TEST(Documents, TellFindingsIfThereAreAny) {
  EXPECT_FALSE(json::parse(summary_document({}, {})).contains("findings"));
  const diagnosis::Findings findings{
      {.kind = diagnosis::Kind::kStraggler,
       .rank = 3,
       .node = "node-b",
       .since = WallTime(std::chrono::sys_days(std::chrono::year(2026) / 11 / 24)),
       .text = "what",
       .advice = "do",
       .gain = diagnosis::GainRange{0, 0.33333}},
      {.kind = diagnosis::Kind::kHang, .text = "a"},
      {.kind = diagnosis::Kind::kHang, .text = "b"}};
  JobState state;
  state.findings = findings;
  const json told = json::parse(summary_document(state, {}))["findings"];
  EXPECT_EQ(told[0], json::parse(R"({"kind":"straggler","rank":3,"node":"node-b","text":"what",
      "since":"2026-11-24T00:00:00Z","advice":"do","gain":[0.0,0.3333]})"));
  EXPECT_EQ(told[1], json::parse(R"({"kind":"hang","text":"a","advice":""})"));
  Ending end = ending(1, 10);
  end.findings = findings;
  EXPECT_EQ(json::parse(report_document(end, {}))["findings"].size(), 3U);
  EXPECT_EQ(json::parse(termination_message(end, {}, 4096))["findings"].size(), 2U);
  EXPECT_EQ(json::parse(stacks_document(2, {{4, "x"}})),
            json::parse(R"({"version":1,"attempt":2,"ranks":[{"rank":4,"text":"x"}]})"));
}

Effects eight_effects() {
  Effects effects;
  for (int i = 0; i < 8; ++i)
    effects.push_back({"feature" + std::to_string(i), true, i * 0.01, std::string(256, '\x01')});
  return effects;
}

TEST(TerminationMessage, EffectsLoseTheirReasonsBeforeLogLinesAreDropped) {
  auto with = ending(5, 200);
  with.effects = {{"compile", true, 0.21434, "kept"}, {"loader", false, std::nullopt, ""}};
  EXPECT_EQ(json::parse(termination_message(with, {}, 4096))["effects"],
            json::parse(R"([{"feature":"compile","kept":true,"gain":0.2143,"reason":"kept"},)"
                        R"({"feature":"loader","kept":false}])"));
  with.effects = eight_effects();
  const json document = json::parse(termination_message(with, {}, 4096));
  EXPECT_EQ(document["culprit"]["lastLines"].size(), 5U);
  EXPECT_EQ(document["effects"].size(), 8U);
  EXPECT_FALSE(document["effects"][0].contains("reason"));
}

TEST(TerminationMessage, FitsWithEffectsWhateverTheLimit) {
  auto with = ending(20, 400);
  with.message = std::string(500, 'm');
  with.effects = eight_effects();
  for (std::size_t limit = 128; limit <= 4096; limit += 64) {
    const std::string text = termination_message(with, {}, limit);
    EXPECT_LE(text.size(), limit);
    EXPECT_EQ(json::parse(text)["verdict"], "Failed");
  }
  EXPECT_FALSE(json::parse(termination_message(with, {}, 700)).contains("effects"));
}

TEST(Summary, HasDeviceTimesOnlyIfADeviceIsMeasured) {
  telemetry::JobSummary job;
  EXPECT_FALSE(training(job, std::nullopt, false).contains("device"));
  job.device = telemetry::DeviceSummary{{}, 0.25};
  job.device->breakdown[PACELINE_PHASE_DATA_WAIT] = 0.25;
  job.device->breakdown[PACELINE_PHASE_FORWARD] = 0.75;
  EXPECT_EQ(training(job, std::nullopt, false)["device"],
            json::parse(R"({"breakdown":{"data_wait":0.25,"forward":0.75},"idle":0.25})"));
}

TEST(Summary, HasEffectsOnlyIfRankZeroHasSpoken) {
  JobState state;
  EXPECT_FALSE(json::parse(summary_document(state, {})).contains("effects"));
  EXPECT_FALSE(json::parse(report_document({}, {})).contains("effects"));
  state.effects.emplace();
  EXPECT_EQ(json::parse(summary_document(state, {}))["effects"], json::array());
  Ending end;
  end.effects = eight_effects();
  EXPECT_EQ(json::parse(report_document(end, {}))["effects"][7]["gain"], 0.07);
}

TEST(Summary, HasTheShapeOfTheContract) {
  telemetry::RankSummary rank;
  rank.rank = 1;
  rank.step = 7;
  rank.p50 = 0.0123;
  rank.window[PACELINE_PHASE_FORWARD] = 3;
  rank.window[PACELINE_PHASE_DATA_WAIT] = 1;
  const auto folded = telemetry::fold({rank}, telemetry::Span::kWindow);
  const json document =
      json::parse(summary_document({"uid", "Running", 1, 2, 3, 4, std::nullopt}, folded));
  EXPECT_EQ(document["version"], 1);
  EXPECT_EQ(document["phase"], "Running");
  EXPECT_EQ(document["gathered"], 3);
  EXPECT_TRUE(document["culprit"].is_null());
  EXPECT_EQ(document["training"]["breakdown"]["forward"], 0.75);
  EXPECT_EQ(document["training"]["stepSeconds"]["p50"], 0.0123);
  EXPECT_EQ(document["training"]["bottleneck"], "data");
  EXPECT_EQ(document["training"]["ranks"][0]["step"], 7);
  EXPECT_TRUE(json::parse(summary_document({}, {}))["training"]["slowestRank"].is_null());
}

TEST(StepHistory, StaysShortAndKeepsItsEnds) {
  StepHistory history;
  const SteadyTime begin{std::chrono::hours(5)};
  history.add(begin, 0);
  EXPECT_TRUE(history.points().empty()) << "nothing is known yet";
  for (int second = 0; second < 100'000; ++second)
    history.add(begin + std::chrono::seconds(second), 0.01 + second * 1e-6);
  const auto& points = history.points();
  EXPECT_LE(points.size(), 256U);
  EXPECT_GE(points.size(), 128U);
  EXPECT_EQ(points.front().at, 0);
  const double distance = points[1].at - points[0].at;
  EXPECT_NEAR(points.back().at, 99'999, 2 * distance);
  for (std::size_t i = 1; i < points.size(); ++i) {
    EXPECT_GE(points[i].at - points[i - 1].at, distance);
    EXPECT_NEAR(points[i].step_seconds, 0.01 + points[i].at * 1e-6, 1e-9);
  }
}

TEST(StepHistory, IsInTheSummary) {
  StepHistory history;
  history.add(SteadyTime{}, 0.0123);
  JobState state;
  EXPECT_FALSE(json::parse(summary_document(state, {}))["training"].contains("history"));
  state.history = &history;
  const json points = json::parse(summary_document(state, {}))["training"]["history"];
  EXPECT_EQ(points, json::parse(R"([{"at":0.0,"stepSeconds":0.0123}])"));
}

}  // namespace
}  // namespace paceline::summary
