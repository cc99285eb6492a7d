// SPDX-License-Identifier: Apache-2.0
// What rank 0 says of the features of its job: from the launcher's reports into
// status.acceleration.effects.
#include <gtest/gtest.h>

#include "tests/unit/operator/controller_bench.hpp"
#include "tests/unit/operator/job_bench.hpp"

namespace paceline {
namespace {

using nlohmann::json;
using std::chrono::seconds;

json report_with(std::int64_t step, const json& effects) {
  return {{"version", 1},  {"phase", "Running"},           {"attempt", 0},
          {"restarts", 0}, {"training", {{"step", step}}}, {"effects", effects}};
}

json kept_compile(double gain) {
  return json::array(
      {{{"feature", "compile"}, {"kept", true}, {"gain", gain}, {"reason", "kept"}}});
}

TEST(Effects, AreReadWhateverTheyAre) {
  const auto read = [](const json& effects) {
    return status::read_report(report_with(1, effects).dump());
  };
  EXPECT_EQ(read(kept_compile(0.2144))->effects,
            json::parse(R"([{"feature":"compile","kept":true,"gain":214,"reason":"kept"}])"));
  EXPECT_TRUE(status::read_report(R"({"version":1})")->effects.is_null());
  for (const json& wrong : {json(1), json("x"), json::object(), json()})
    EXPECT_TRUE(read(wrong)->effects.is_null()) << wrong.dump();
  for (const json& wrong :
       {json(1), json(), json{{"feature", 1}, {"kept", true}}, json{{"feature", "loader"}},
        json{{"feature", "loader"}, {"kept", "true"}}, json{{"feature", ""}, {"kept", true}}})
    EXPECT_EQ(read(json::array({wrong}))->effects, json::array()) << wrong.dump();
  for (const json& gain : {json("1"), json(1e9), json(-1e300), json()}) {
    const json entry{{"feature", "loader"}, {"kept", false}, {"gain", gain}};
    EXPECT_EQ(read(json::array({entry}))->effects,
              json::parse(R"([{"feature":"loader","kept":false}])"))
        << "unknown is absent, not 0: " << gain.dump();
  }
}

TEST(Effects, AreBounded) {
  json many = json::array();
  for (int i = 0; i < 10'000; ++i)
    many.push_back(
        {{"feature", std::string(1000, 'f')}, {"kept", true}, {"reason", std::string(5000, 'r')}});
  const json effects = status::read_report(report_with(1, many).dump())->effects;
  ASSERT_EQ(effects.size(), 16U);
  EXPECT_EQ(effects[0]["feature"].get<std::string>().size(), 64U);
  EXPECT_EQ(effects[15]["reason"].get<std::string>().size(), 256U);
}

TEST(Effects, ReachTheStatusAndAreForgottenWithTheGang) {
  plan::JobBench bench(json{{"acceleration", json::object()}});
  bench.run();
  bench.memory.summary = status::read_report(report_with(10, kept_compile(0.2)).dump());
  bench.settle();
  EXPECT_EQ(bench.status().effects[0]["gain"], 200) << "it went through JSON";
  bench.restart_operator();
  bench.settle();
  EXPECT_EQ(bench.status().effects.size(), 1U) << "no report says otherwise";

  json ending = report_with(20, kept_compile(0.3));
  ending["verdict"] = "Succeeded";
  plan::JobBench ended(json{{"acceleration", json::object()}});
  ended.run();
  ended.end_all(0, ending);
  ended.settle();
  EXPECT_EQ(ended.status().phase, "Succeeded");
  EXPECT_EQ(ended.status().effects[0]["gain"], 300);

  bench.change_spec({{"suspend", true}});
  bench.settle();
  EXPECT_TRUE(bench.status().effects.is_null());
}

TEST(Effects, AJobWithoutAccelerationHasNone) {
  plan::JobBench bench(json{{"acceleration", {{"mode", "Disabled"}}}});
  bench.run();
  bench.memory.summary = status::read_report(report_with(10, kept_compile(0.2)).dump());
  bench.settle();
  EXPECT_EQ(bench.status().training["step"], 10);
  EXPECT_TRUE(bench.status().effects.is_null());
}

TEST(Effects, CostNoWriteMoreHoweverOftenTheyChange) {
  const auto writes_of = [](bool effects, bool steps) {
    apply::ControllerBench bench;
    bench.add_node("n0", 2);
    bench.add_job("j", {{"acceleration", json::object()}});
    bench.settle();
    const std::uint64_t before = bench.writes();
    for (int second = 0; second < 600; ++second) {
      bench.summary = report_with(steps ? second + 1 : 1,
                                  effects ? kept_compile(0.001 * second) : json::array())
                          .dump();
      bench.advance(seconds(1));
    }
    return bench.writes() - before;
  };
  EXPECT_EQ(writes_of(true, true), writes_of(false, true));
  EXPECT_LE(writes_of(true, false), writes_of(false, true)) << "training stands still";
  EXPECT_LE(writes_of(false, false), 2U) << "nothing changes";
}

}  // namespace
}  // namespace paceline
