// SPDX-License-Identifier: Apache-2.0
// What the status takes of a launcher's report of the training. The report comes from a container
// that runs a user's code.
#include <gtest/gtest.h>

#include "operator/status/training.hpp"
#include "tests/unit/operator/job_bench.hpp"

namespace paceline {
namespace {

using nlohmann::json;

json device_of(const json& device) {
  const json report{{"version", 1}, {"training", {{"step", 3}, {"device", device}}}};
  return status::read_report(report.dump())->training.value("device", json());
}

TEST(TrainingReport, DeviceTimesAreTakenInThousandths) {
  EXPECT_EQ(device_of({{"breakdown", {{"forward", 0.7504}, {"data_wait", 0.25}}}, {"idle", 0.25}}),
            json::parse(R"({"breakdown":{"forward":750,"data_wait":250},"idle":250})"));
}

TEST(TrainingReport, DeviceTimesThatAreNoneAreAbsent) {
  for (const json& wrong :
       {json(), json(1), json("x"), json::array(), json::object(), json{{"idle", "x"}},
        json{{"breakdown", 1}, {"idle", -1}}, json{{"breakdown", {{"forward", "x"}}}}})
    EXPECT_TRUE(device_of(wrong).is_null()) << wrong.dump();
}

TEST(TrainingReport, DeviceTimesAreBounded) {
  json many = json::object();
  for (int i = 0; i < 1000; ++i) many["phase" + std::to_string(i)] = 1e300;
  const json device = device_of({{"breakdown", many}, {"idle", 1e14}});
  EXPECT_EQ(device["breakdown"].size(), 32U);
  EXPECT_EQ(device["breakdown"].begin().value(), 1000);
  EXPECT_EQ(device["idle"], 1000);
}

TEST(TrainingReport, IsShownOnceAMinuteAndAfterTheClockWasSetBack) {
  plan::JobBench bench;
  bench.run();
  const auto shown_after = [&](int step, std::chrono::seconds since_the_last) {
    const json report{{"version", 1}, {"phase", "Running"}, {"training", {{"step", step}}}};
    bench.memory.summary = status::read_report(report.dump());
    bench.memory.summary_at = bench.now;
    bench.memory.training_written = bench.now - since_the_last;
    bench.step();
    return bench.status().training.value("step", 0);
  };
  EXPECT_EQ(shown_after(5, std::chrono::minutes(1)), 5);
  EXPECT_EQ(shown_after(6, std::chrono::seconds(10)), 5);
  EXPECT_EQ(shown_after(7, -std::chrono::hours(1)), 7);
}

}  // namespace
}  // namespace paceline
