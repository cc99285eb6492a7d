// SPDX-License-Identifier: Apache-2.0
// When the scheduler passes over the cluster, what it holds meanwhile, and what is counted.
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "operator/apply/executor.hpp"
#include "operator/apply/facts/job_facts.hpp"
#include "operator/metrics.hpp"
#include "tests/unit/operator/controller_bench.hpp"

namespace paceline::apply {
namespace {

using nlohmann::json;

constexpr const char* kOldTaint = R"({"spec":{"taints":[{"key":"old","effect":"NoSchedule"}]}})";
constexpr const char* kNewTaint = R"({"spec":{"taints":[{"key":"new","effect":"NoSchedule"}]}})";

json cpus_of_each(const std::string& cpu) {
  const json container = {{"name", "trainer"},
                          {"image", "i"},
                          {"command", {"train"}},
                          {"resources", {{"requests", {{"cpu", cpu}}}}}};
  const json pod = {{"spec", {{"containers", json::array({container})}}}};
  return {{"roles", json::array({{{"name", "w"}, {"replicas", 2}, {"template", pod}}})}};
}

/// True if the controller answered another thread while it computed a placement.
bool answers_meanwhile() {
  ControllerBench bench;
  for (int i = 0; i < 300; ++i) bench.add_node("n" + std::to_string(i), 1);
  // Of each shape there is one job, so that the pass looks at every node for each of them.
  for (int i = 0; i < 40; ++i)
    bench.add_job("j" + std::to_string(i), cpus_of_each(std::to_string(1001 + i) + "m"));
  constexpr std::uint64_t kNone = ~0ULL;
  std::atomic<std::uint64_t> awaited = kNone;
  std::atomic<int> before = 0;
  std::atomic<bool> seen = false;
  bool answered = false;
  bench.around_pass = [&](bool begins) {
    // A pass that holds the lock to its end has woken its jobs when another thread sees it.
    const bool woke = bench.enqueued > before;
    if (!begins) answered = answered || (woke && seen);
    seen = false;
    before = bench.enqueued.load();
    awaited = begins ? bench.controller().counters().scheduler_passes + 1 : kNone;
  };
  const std::jthread other([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      const bool computes = bench.controller().counters().scheduler_passes == awaited;
      if (computes && bench.enqueued == before) seen = true;
    }
  });
  bench.settle();
  return answered;
}

TEST(Pass, OthersUseTheControllerMeanwhile) {
  // On a busy machine the other thread may sleep during a pass.
  bool answered = false;
  for (int i = 0; i < 20 && !answered; ++i) answered = answers_meanwhile();
  EXPECT_TRUE(answered) << "the controller answers nobody while it computes";
}

TEST(Pass, ItsTimeIsMeasured) {
  WorkTimes times;
  for (const int ms : {1, 3, 3, 12000}) times.add(std::chrono::milliseconds(ms));
  EXPECT_EQ(times.buckets[1], 1U) << "a bound belongs to its bucket";
  EXPECT_EQ(times.buckets[3], 2U);
  EXPECT_EQ(times.buckets.back(), 1U);
  EXPECT_DOUBLE_EQ(times.longest_s, 12);
  OperatorState state;
  state.counters.pass_times = times;
  const std::string text = operator_metrics(state);
  EXPECT_NE(text.find("scheduler_pass_seconds_bucket{le=\"0.005\"} 3\n"), std::string::npos)
      << text;
  EXPECT_NE(text.find("scheduler_pass_seconds_count 4\n"), std::string::npos);
  EXPECT_NE(text.find("scheduler_pass_longest_seconds 12\n"), std::string::npos);
}

TEST(Pass, EachIsCountedWithItsTime) {
  ControllerBench bench;
  bench.add_node("n0", 4);
  bench.add_job("j");
  bench.settle();
  const Counters counters = bench.controller().counters();
  std::uint64_t timed = 0;
  for (const std::uint64_t bucket : counters.pass_times.buckets) timed += bucket;
  EXPECT_GT(timed, 0U);
  EXPECT_LE(timed, counters.scheduler_passes);
}

TEST(Pass, NoneWhileNoJobWaits) {
  ControllerBench bench;
  bench.add_node("n0", 4);
  bench.add_job("j");
  bench.settle();
  ASSERT_EQ(bench.job("j")["status"]["phase"], "Running");
  const std::uint64_t passes = bench.controller().counters().scheduler_passes;
  for (int i = 1; i < 10; ++i) bench.add_node("n" + std::to_string(i), 4);
  bench.settle();
  EXPECT_EQ(bench.controller().counters().scheduler_passes, passes);
}

TEST(Pass, FollowsATaintThatReplacesAnother) {
  ControllerBench bench;
  bench.add_node("n0", 4);
  bench.cluster().poke(kube::kNodes, "", "n0", kOldTaint);
  json spec = cpus_of_each("1");
  spec["roles"][0]["template"]["spec"]["tolerations"] =
      json::array({{{"key", "new"}, {"operator", "Exists"}}});
  bench.add_job("j", spec);
  bench.settle();
  ASSERT_EQ(bench.job("j")["status"]["phase"], "Queued");
  bench.cluster().poke(kube::kNodes, "", "n0", kNewTaint);
  bench.settle();
  EXPECT_EQ(bench.job("j")["status"]["phase"], "Running") << bench.job("j")["status"].dump(1);
}

/// Another job starts, whatever is on record of the first.
bool another_starts(ControllerBench& bench) {
  bench.add_job("next");
  bench.settle();
  return bench.job("next").value("/status/phase"_json_pointer, "") == "Running";
}

TEST(Pass, AStatusOfAnotherClusterHoldsNoJobBack) {
  ControllerBench bench;
  bench.add_node("n0", 2);
  bench.add_job("j");
  bench.settle();
  // MultiKueue shows in its own cluster what became of the job in a worker's.
  const json mirrored = {{"status", bench.job("j")["status"]}};
  bench.remove_job("j");
  bench.add_job("theirs", {{"managedBy", "kueue.x-k8s.io/multikueue"}});
  bench.cluster().poke(kube::kTrainingJobs, "default", "theirs", mirrored.dump());
  bench.settle();
  EXPECT_TRUE(another_starts(bench)) << bench.job("next")["status"].dump(1);
  EXPECT_EQ(bench.job("theirs")["status"], mirrored["status"]);
}

TEST(Pass, ADeletedJobThatAFinalizerKeepsHasNoRoomForPodsThatEnded) {
  for (const bool restarted : {false, true}) {
    ControllerBench bench;
    bench.add_node("n0", 2);
    bench.add_job("j");
    bench.settle();
    bench.cluster().poke(kube::kTrainingJobs, "default", "j",
                         R"({"metadata":{"finalizers":["example.com/audit"]}})");
    bench.remove_job("j");
    bench.settle();
    bench.finish("j");
    if (restarted) bench.restart_operator();
    EXPECT_TRUE(another_starts(bench)) << bench.job("next")["status"].dump(1);
    ASSERT_TRUE(bench.job("j")["metadata"].contains("deletionTimestamp"));
  }
}

TEST(Pass, AGangThatGoesOnWithoutAReplicaHoldsNoJobBack) {
  ControllerBench bench;
  bench.add_node("n0", 4);
  json spec = cpus_of_each("1");
  spec["roles"][0]["replicas"] = 1;
  json evaluator = spec["roles"][0];
  evaluator["name"] = "eval";
  evaluator["kind"] = "Evaluator";
  spec["roles"].push_back(evaluator);
  bench.add_job("j", spec);
  bench.settle();
  ASSERT_EQ(bench.job("j")["status"]["phase"], "Running") << bench.job("j")["status"].dump(1);
  // Its launchers would refuse an evaluator of this release.
  bench.cluster().poke(kube::kTrainingJobs, "default", "j",
                       R"({"status":{"placement":{"contract":1}}})");
  bench.restart_operator();
  bench.settle();
  bench.cluster().erase(kube::kPods, "default", "j-eval-0-0");
  bench.settle();
  ASSERT_EQ(bench.pods("j").size(), 1U);
  ASSERT_EQ(bench.job("j")["status"]["phase"], "Running") << bench.job("j")["status"].dump(1);
  EXPECT_TRUE(another_starts(bench)) << bench.job("next")["status"].dump(1);
}

TEST(Pass, AnInternalErrorIsCounted) {
  ControllerBench bench;
  bench.controller().contain("default/j", std::runtime_error("simulated"));
  EXPECT_EQ(bench.controller().counters().internal_errors, 1U);
}

TEST(Pass, AJobThatThrowsWhileAPodOfItIsMissingHoldsNoJobBack) {
  ControllerBench bench;
  bench.add_node("n0", 4);
  bench.add_job("broken");
  bench.settle();
  ASSERT_EQ(bench.job("broken")["status"]["phase"], "Running");
  bench.cluster().erase(kube::kPods, "default", "broken-w-1-0");
  bench.cluster().set_faults([](const http::Request& request) -> std::optional<kube::Fault> {
    const bool of_it = request.target.find("broken") != std::string::npos ||
                       request.body.find("broken") != std::string::npos;
    if (of_it) throw std::runtime_error("simulated");
    return std::nullopt;
  });
  bench.restart_operator();
  EXPECT_TRUE(another_starts(bench)) << bench.job("next")["status"].dump(1);
  EXPECT_GT(bench.controller().counters().internal_errors, 0U);
  const auto facts = bench.controller().facts("default/broken");
  ASSERT_TRUE(facts && facts->failure);
  EXPECT_EQ(facts->failure->message, "internal error: simulated");

  bench.cluster().set_faults({});
  bench.advance(std::chrono::minutes(10));
  EXPECT_EQ(bench.pods("broken").size(), 2U) << bench.job("broken")["status"].dump(1);
}

TEST(Pass, AJobThatThrowsWhileItWaitsReservesNoNodes) {
  ControllerBench bench;
  bench.add_node("n0", 4);
  bench.add_job("runs");
  bench.settle();
  json spec = cpus_of_each("1");
  spec["roles"][0]["replicas"] = 4;
  bench.add_job("broken", spec);
  bench.settle();
  ASSERT_EQ(bench.job("broken")["status"]["phase"], "Queued");
  bench.controller().contain("default/broken", std::runtime_error("simulated"));
  EXPECT_TRUE(another_starts(bench)) << bench.job("next")["status"].dump(1);
}

TEST(PoolExecutor, AnExceptionOfATaskReachesTheCallerOfItsBatch) {
  PoolExecutor pool(2);
  std::atomic<int> done = 0;
  const Executor::Task counts = [&] { ++done; };
  const Executor::Task throws = [] { throw std::runtime_error("simulated"); };
  EXPECT_THROW(pool.run({counts, throws, counts}), std::runtime_error);
  EXPECT_EQ(done, 2) << "the rest of the batch is done all the same";
  pool.run({counts, counts});
  EXPECT_EQ(done, 4);
}

TEST(Gauge, KnowsTheJobsOfAnEarlierOperator) {
  ControllerBench bench;
  bench.add_node("n0", 2);
  bench.add_job("running");
  bench.settle();
  bench.add_job("waiting");
  bench.settle();
  const std::map<std::string, std::int64_t> jobs{{"Queued", 1}, {"Running", 1}};
  const auto now = [&] {
    auto phases = bench.controller().counters().jobs_by_phase;
    std::erase_if(phases, [](const auto& phase) { return phase.second == 0; });
    return phases;
  };
  EXPECT_EQ(now(), jobs);
  bench.restart_operator();
  bench.settle();
  EXPECT_EQ(now(), jobs);
}

TEST(Gauge, LeavesOutJobsOfOtherManagers) {
  ControllerBench bench;
  const json theirs = {{"managedBy", "example.com/other"}};
  bench.add_job("theirs", theirs);
  bench.cluster().poke(kube::kTrainingJobs, "default", "theirs",
                       R"({"status":{"phase":"Running"}})");
  bench.settle();
  const auto counted = [&] {
    std::int64_t sum = 0;
    for (const auto& [phase, jobs] : bench.controller().counters().jobs_by_phase) sum += jobs;
    return sum;
  };
  EXPECT_EQ(counted(), 0);
  bench.restart_operator();
  bench.settle();
  EXPECT_EQ(counted(), 0);
}

}  // namespace
}  // namespace paceline::apply
