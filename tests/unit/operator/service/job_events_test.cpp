// SPDX-License-Identifier: Apache-2.0
// What `kubectl describe trainingjob` shows of a job's life.
#include "operator/service/job_events.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/unit/operator/controller_bench.hpp"

namespace paceline {
namespace {

using apply::ControllerBench;
using apply::News;
using nlohmann::json;
using std::chrono::minutes;

api::TrainingJob job_named(const std::string& name) {
  api::TrainingJob job;
  job.metadata.name = name;
  job.metadata.name_space = "team";
  job.metadata.uid = "u1";
  return job;
}

kube::EventNote told(const std::string& phase, const std::string& reason,
                     const std::string& message) {
  api::JobStatus status;
  status.phase = phase;
  status.reason = reason;
  status.message = message;
  return event_of(job_named("j"), status, News::kPhase);
}

kube::EventNote effects(const char* text) {
  api::JobStatus status;
  status.effects = json::parse(text);
  return event_of(job_named("j"), status, News::kEffects);
}

/// "reason action" of each event since the last call.
std::vector<std::string> news(ControllerBench& bench) {
  std::vector<std::string> all;
  for (const kube::EventNote& event : std::exchange(bench.events, {}))
    all.push_back(event.reason + ' ' + event.action);
  return all;
}

TEST(JobEvents, TheReasonIsTheCause) {
  const kube::EventNote event = told("Restarting", "NodeLost", "node n3 is lost");
  EXPECT_TRUE(event.warning);
  EXPECT_EQ(event.reason, "NodeLost");
  EXPECT_EQ(event.action, "Restarting");
  EXPECT_EQ(event.note, "Restarting: node n3 is lost");
  EXPECT_EQ(event.regarding.kind, "TrainingJob");
  EXPECT_EQ(event.regarding.ns, "team");
  EXPECT_EQ(event.regarding.name, "j");
  EXPECT_EQ(event.regarding.uid, "u1");
  EXPECT_FALSE(told("Running", "PodsRunning", "2 of 2 pods").warning);
  EXPECT_EQ(told("Starting", "", "").reason, "Starting") << "an event needs a reason";
  EXPECT_EQ(told("Starting", "", "").note, "Starting");
}

TEST(JobEvents, EffectsAreToldInShort) {
  const kube::EventNote event =
      effects(R"([{"feature":"loader","kept":true},{"feature":"compile","kept":true,"gain":214},)"
              R"({"feature":"precision","kept":false,"reason":"the CPU has no bfloat16"}])");
  EXPECT_FALSE(event.warning);
  EXPECT_EQ(event.reason, "Accelerated");
  EXPECT_EQ(event.note,
            "acts: loader, compile (steps +21.4 %); does not act: precision; "
            "status.acceleration.effects says why");
  EXPECT_EQ(effects(R"([{"feature":"loader","kept":true}])").note, "acts: loader");
  const kube::EventNote none = effects(R"([{"feature":"loader","kept":false}])");
  EXPECT_EQ(none.reason, "NotAccelerated");
  EXPECT_EQ(none.note, "does not act: loader; status.acceleration.effects says why");
}

TEST(JobEvents, AWaitingJobTellsEachReasonOnceInAWhile) {
  ControllerBench bench;
  bench.add_node("n0", 1);
  const auto turn = [&](const char* pods) {
    bench.cluster().poke(kube::kResourceQuotas, "default", "q",
                         json{{"spec", {{"hard", {{"pods", pods}}}}}}.dump());
    bench.advance(std::chrono::seconds(70));
  };
  bench.create(kube::kResourceQuotas, "default",
               {{"metadata", {{"name", "q"}}}, {"spec", {{"hard", {{"pods", "1"}}}}}});
  bench.settle();
  bench.add_job("j");
  bench.settle();
  EXPECT_EQ(news(bench), std::vector<std::string>{"QuotaTooSmall Queued"});
  turn("9");
  EXPECT_EQ(news(bench), std::vector<std::string>{"TooLarge Queued"});
  for (int i = 0; i < 3; ++i) {
    turn("1");
    turn("9");
  }
  EXPECT_TRUE(news(bench).empty()) << "it alternates between the two";
  turn("1");
  ASSERT_EQ(bench.job("j")["status"]["reason"], "QuotaTooSmall");
  bench.advance(minutes(11));
  EXPECT_TRUE(news(bench).empty()) << "nothing has changed";
  turn("9");
  EXPECT_EQ(news(bench), std::vector<std::string>{"TooLarge Queued"});
}

TEST(JobEvents, ANewJobThatStartsIsNotToldAsQueued) {
  ControllerBench bench;
  bench.add_node("n0", 2);
  bench.add_job("j");
  bench.settle();
  bench.finish("j");
  bench.settle();
  const std::vector<std::string> all = news(bench);
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all.back(), "Completed Succeeded");
  for (const std::string& event : all) EXPECT_FALSE(event.ends_with("Queued")) << event;
}

TEST(JobEvents, EffectsAreToldOnceForAGang) {
  ControllerBench bench;
  bench.add_node("n0", 2);
  bench.add_job("j", {{"acceleration", json::object()}});
  bench.settle();
  const auto report = [&](int step, double gain) {
    const json compile = {{"feature", "compile"}, {"kept", true}, {"gain", gain}};
    bench.summary =
        json{{"version", 1},  {"phase", "Running"},           {"attempt", 0},
             {"restarts", 0}, {"training", {{"step", step}}}, {"effects", json::array({compile})}}
            .dump();
    bench.advance(std::chrono::seconds(61));
  };
  (void)news(bench);
  report(5, 0.2);
  report(6, 0.3);
  bench.restart_operator();
  report(7, 0.4);
  ASSERT_EQ(bench.job("j")["status"]["acceleration"]["effects"][0]["gain"], 400);
  EXPECT_EQ(news(bench), std::vector<std::string>{"Accelerated Accelerate"});
}

}  // namespace
}  // namespace paceline
