// SPDX-License-Identifier: Apache-2.0
// What a job's time was used for: from the launcher's reports into status.goodput, and on to the
// job's next pods.
#include "operator/status/goodput.hpp"

#include <gtest/gtest.h>

#include "tests/unit/operator/job_bench.hpp"

namespace paceline::plan {
namespace {

using nlohmann::json;
using std::chrono::seconds;

json goodput(double all, double restarting = 0) {
  return {{"seconds", all}, {"ratio", 0.5}, {"losses", {{"restarting", restarting}}}};
}

status::Report report_with(const json& goodput) {
  return *status::read_report(json{
      {"version", 1},
      {"phase", "Running"},
      {"training", {{"step", 10}}},
      {"goodput", goodput}}.dump());
}

void tell(JobBench& bench, const json& goodput) {
  bench.memory.summary = report_with(goodput);
  bench.memory.summary_at = bench.now;
}

TEST(Goodput, PartsAddUpInWholeSecondsWhateverTheReportSays) {
  const json odd = {{"seconds", 100.4},
                    {"ratio", 0.7},
                    {"restarts", 2},
                    {"sinceCheckpoint", 12.6},
                    {"lostStepsUnknown", 1},
                    {"userStep", 77},
                    {"stepMicroseconds", 250'000},
                    {"losses",
                     {{"starting", 10.6},
                      {"checkpoint", 9.7},
                      {"evaluation", 0.2},
                      {"invented", 1000},
                      {"waiting", "much"},
                      {"lostSteps", -3}}}};
  const json kept = status::goodput_of(odd);
  EXPECT_EQ(kept["losses"], json::parse(R"({"starting":11,"checkpoint":10})"));
  EXPECT_EQ(kept["seconds"], 101) << "21 s of losses and 79.9 s of training";
  EXPECT_EQ(kept["ratio"], 80 * 1000 / 101);
  EXPECT_EQ(kept["sinceCheckpoint"], 13);
  EXPECT_EQ(kept["lostStepsUnknown"], 1);
  EXPECT_EQ(kept["userStep"], 77);
  EXPECT_EQ(kept["stepMicroseconds"], 250'000);
  EXPECT_EQ(kept["restarts"], 2);
  for (const json& wrong : {json(1), json("x"), json(), json::array(), json{{"seconds", -1}},
                            json{{"seconds", 1e300}}, json{{"seconds", "1"}}})
    EXPECT_TRUE(status::goodput_of(wrong).is_null()) << wrong.dump();
  EXPECT_FALSE(status::goodput_of({{"seconds", 5}}).contains("ratio")) << "absent is not 0";
}

TEST(Goodput, IsWrittenWithTheTrainingAndOutlivesTheOperator) {
  JobBench bench;
  bench.run();
  tell(bench, goodput(20, 4));
  bench.settle();
  EXPECT_EQ(bench.status().goodput["seconds"], 20);
  EXPECT_EQ(bench.status().goodput["losses"]["restarting"], 4);
  EXPECT_EQ(bench.status().goodput["asOf"], "2026-01-01T00:00:00Z");
  bench.restart_operator();
  bench.settle();
  EXPECT_EQ(bench.status().goodput["seconds"], 20);
}

TEST(Goodput, AShorterAccountReplacesNone) {
  JobBench bench;
  bench.run();
  tell(bench, goodput(200));
  bench.settle();
  bench.advance(seconds(61));
  tell(bench, goodput(3));  // a launcher of an older release starts at 0
  bench.settle();
  EXPECT_EQ(bench.status().goodput["seconds"], 200);
}

TEST(Goodput, TheLastWordBeforeALossIsKept) {
  JobBench bench;
  bench.run();
  tell(bench, goodput(20));
  bench.settle();
  bench.advance(seconds(30));  // too soon for another write of the training
  tell(bench, goodput(50));
  bench.end(1, 137);
  bench.settle();
  EXPECT_EQ(bench.status().goodput["seconds"], 50);

  JobBench by_rank_zero;
  by_rank_zero.run();
  tell(by_rank_zero, goodput(20));
  by_rank_zero.settle();
  by_rank_zero.end(0, 66, {{"version", 1}, {"verdict", "Terminated"}, {"goodput", goodput(33)}});
  by_rank_zero.settle();
  EXPECT_EQ(by_rank_zero.status().goodput["seconds"], 33) << "its termination message";
}

TEST(Goodput, TheTimeOfASuspensionIsLeftOut) {
  JobBench bench;
  bench.run();
  tell(bench, goodput(20));
  bench.settle();
  bench.change_spec({{"suspend", true}});
  bench.settle();
  ASSERT_EQ(bench.status().phase, "Suspended");
  EXPECT_EQ(bench.status().goodput["seconds"], 20);
  bench.advance(std::chrono::hours(5));
  bench.change_spec({{"suspend", false}});
  bench.settle();
  EXPECT_EQ(bench.status().goodput["asOf"], "2026-01-01T05:00:00Z");
  EXPECT_EQ(bench.status().goodput["seconds"], 20);
}

TEST(Goodput, AClockThatWasSetBackMovesNothing) {
  json kept = goodput(20);
  kept["asOf"] = "2026-01-01T00:00:00Z";
  EXPECT_EQ(status::goodput_after_pause(kept, -seconds(60)), kept);
  EXPECT_TRUE(status::goodput_after_pause({}, seconds(60)).is_null());
  EXPECT_EQ(status::goodput_after_pause(kept, seconds(60))["asOf"], "2026-01-01T00:01:00Z");
}

}  // namespace
}  // namespace paceline::plan
