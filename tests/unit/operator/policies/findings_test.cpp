// SPDX-License-Identifier: Apache-2.0
// What rank 0's launcher finds becomes status.findings.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "operator/status/training.hpp"
#include "tests/unit/operator/controller_bench.hpp"
#include "tests/unit/operator/job_bench.hpp"

namespace paceline {
namespace {

using nlohmann::json;
using std::chrono::seconds;

json one_finding(const std::string& kind, int rank, const std::string& text = "what is wrong") {
  return {{"kind", kind}, {"rank", rank},           {"node", "n0"},
          {"text", text}, {"advice", "what to do"}, {"since", "2026-11-24T10:00:00Z"}};
}

json found_report(std::int64_t step, const json& findings) {
  return {{"version", 1},
          {"phase", "Running"},
          {"gathered", 1},
          {"expected", 1},
          {"attempt", 0},
          {"restarts", 0},
          {"training", {{"step", step}}},
          {"findings", findings}};
}

TEST(Findings, AreReadEntryByEntry) {
  const auto read = [](const json& findings) {
    return status::read_report(found_report(1, findings).dump())->findings;
  };
  json whole = one_finding("straggler", 3);
  whole["gain"] = {0, 0.25};
  json shown = whole;
  shown["gain"] = {0, 250};
  EXPECT_EQ(read(json::array({whole})), json::array({shown}));
  EXPECT_TRUE(read(json::array()).is_null());
  for (const json& wrong : {json(1), json("x"), json::object(), json::array({1})})
    EXPECT_TRUE(read(wrong).is_null()) << wrong.dump();
  EXPECT_TRUE(read(json::array({{{"kind", "hang"}}})).is_null()) << "it says nothing";
  json many = json::array();
  for (int i = 0; i < 40; ++i)
    many.push_back(one_finding(std::string(99, 'k'), i, std::string(999, 't')));
  ASSERT_EQ(read(many).size(), 8U);
  EXPECT_EQ(read(many)[0]["text"].get<std::string>().size(), 512U);
  EXPECT_EQ(read(many)[0]["kind"].get<std::string>().size(), 32U);
}

TEST(Findings, ComeAndGoWithTheReports) {
  plan::JobBench bench;
  bench.run();
  bench.memory.summary =
      status::read_report(found_report(10, json::array({one_finding("hang", 1)})).dump());
  bench.settle();
  EXPECT_EQ(bench.status().findings[0]["rank"], 1);
  bench.advance(seconds(61));
  bench.memory.summary = status::read_report(found_report(20, json::array()).dump());
  bench.settle();
  EXPECT_TRUE(bench.status().findings.is_null());
}

struct Looks {
  std::uint64_t writes = 0;
  json status;
};
/// Of ten minutes, with a report each second.
Looks looks_of(const std::function<json(int second)>& report) {
  apply::ControllerBench bench;
  bench.add_node("n0", 2);
  bench.add_job("j", json::object());
  bench.settle();
  const std::uint64_t before = bench.writes();
  for (int second = 0; second < 600; ++second) {
    bench.summary = report(second).dump();
    bench.advance(seconds(1));
  }
  return {bench.writes() - before, bench.job("j")["status"]};
}

TEST(Findings, ThatChangeWithEveryLookCostFewWrites) {
  const auto hang = [](int second) {
    json report =
        found_report(1, json::array({one_finding("hang", 1, "for " + std::to_string(second))}));
    report["goodput"] = {{"seconds", 100 + second}, {"ratio", 0.5}, {"losses", json::object()}};
    return report;
  };
  EXPECT_LE(looks_of(hang).writes, 2U) << "only the numbers of a still job change";
  const auto flapping = [](int second) {
    return found_report(1, json::array({one_finding("hang", second % 2)}));
  };
  EXPECT_LE(looks_of(flapping).writes, 12U);
  const auto reordered = [](int second) {
    return found_report(
        1, json::array({one_finding("hang", second % 2), one_finding("hang", (second + 1) % 2)}));
  };
  EXPECT_LE(looks_of(reordered).writes, 2U) << "they are the same";
}

TEST(Findings, ThatChangeLeaveNothingElseStale) {
  const auto report = [](int second) {
    json report =
        found_report(1 + second, json::array({one_finding("straggler", (second / 20) % 2)}));
    report["goodput"] = {{"seconds", 1 + second}, {"ratio", 0.5}, {"losses", json::object()}};
    return report;
  };
  const Looks looks = looks_of(report);
  EXPECT_LE(looks.writes, 22U);
  EXPECT_GE(looks.status["training"]["step"], 500);
  EXPECT_GE(looks.status["goodput"]["seconds"], 500);
}

}  // namespace
}  // namespace paceline
