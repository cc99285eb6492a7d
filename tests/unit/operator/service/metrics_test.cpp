// SPDX-License-Identifier: Apache-2.0
// What /metrics says of the queue, of times, of calls and of caches.
#include "operator/metrics.hpp"

#include <gtest/gtest.h>

#include "common/contract/labels.hpp"
#include "tests/unit/operator/controller_bench.hpp"

namespace paceline {
namespace {

using namespace std::chrono_literals;
using apply::ControllerBench;

std::string text_of(ControllerBench& bench) {
  return operator_metrics(state_of(bench.controller(), bench.stores(), bench.queue()));
}

std::shared_ptr<const observe::JobView> waiting(const std::string& queue,
                                                const std::string& reason) {
  observe::JobView view;
  view.job.spec.managed_by = contract::kManagedBy;
  view.job.spec.scheduling.queue = queue;
  view.status.phase = reason.empty() ? "" : "Queued";
  view.status.reason = reason;
  return std::make_shared<const observe::JobView>(std::move(view));
}

TEST(Metrics, JobsWaitByQueueAndReason) {
  ControllerBench bench;
  bench.add_node("n0", 2);
  bench.add_job("runs");
  bench.settle();
  bench.add_job("waits", {{"scheduling", {{"queue", "team-a"}}}});
  bench.settle();
  bench.advance(2s);
  EXPECT_NE(text_of(bench).find("paceline_operator_waiting_jobs{queue=\"team-a\","
                                "reason=\"WaitingForRoom\"} 1\n"),
            std::string::npos)
      << text_of(bench);
}

TEST(Metrics, QueuesBeyondTheBoundAreOther) {
  std::vector<std::shared_ptr<const observe::JobView>> jobs;
  for (std::size_t i = 0; i < kNamedQueues + 3; ++i)
    jobs.push_back(waiting("q" + std::to_string(i), "QuotaExceeded"));
  jobs.push_back(waiting("z", ""));
  jobs.push_back(waiting("z", "QuotaExceeded"));
  const Waiting found = waiting_jobs(jobs);
  EXPECT_EQ(found.at({"other", "QuotaExceeded"}), 4);
  EXPECT_EQ(found.at({"z", "Queued"}), 1) << "a new job; and the longest queue keeps its name";
  EXPECT_EQ(found.size(), kNamedQueues + 2);
}

TEST(Metrics, JobsOfOthersAndInvalidOnesDoNotWait) {
  observe::JobView other;
  other.job.spec.managed_by = "somebody";
  observe::JobView invalid;
  invalid.job.spec.managed_by = contract::kManagedBy;
  invalid.errors.emplace_back();
  EXPECT_TRUE(waiting_jobs({std::make_shared<const observe::JobView>(std::move(other)),
                            std::make_shared<const observe::JobView>(std::move(invalid))})
                  .empty());
}

TEST(Metrics, AJobsWaitCountsOnceFromItsCreation) {
  ControllerBench bench;
  bench.add_job("j");
  bench.settle();
  bench.advance(100s);
  EXPECT_EQ(bench.controller().counters().wait_times.longest_s, 0);
  bench.add_node("n0", 2);
  bench.settle();
  bench.patch_job("j", {{"spec", {{"suspend", true}}}});
  bench.settle();
  bench.advance(1000s);
  bench.patch_job("j", {{"spec", {{"suspend", false}}}});
  bench.settle();
  ASSERT_EQ(bench.job("j")["status"]["phase"], "Running");
  const apply::WaitTimes times = bench.controller().counters().wait_times;
  EXPECT_EQ(times.longest_s, 100);
  EXPECT_EQ(times.total_s, 100);
  EXPECT_NE(text_of(bench).find("job_wait_seconds_bucket{le=\"300\"} 1\n"), std::string::npos);
}

TEST(Metrics, EachReconciliationHasItsTime) {
  ControllerBench bench;
  bench.add_node("n0", 2);
  bench.add_job("j");
  bench.settle();
  const std::uint64_t count = bench.controller().counters().reconciles;
  EXPECT_GT(count, 0U);
  EXPECT_NE(text_of(bench).find("paceline_operator_reconcile_seconds_count " +
                                std::to_string(count) + "\n"),
            std::string::npos);
}

TEST(Metrics, EveryCacheHasItsSize) {
  ControllerBench bench;
  bench.add_node("n0", 2);
  bench.add_job("j");
  bench.settle();
  const std::string text = text_of(bench);
  for (const char* line :
       {"cached_objects{resource=\"trainingjobs\"} 1\n",
        "cached_objects{resource=\"localqueues\"} 0\n", "cached_objects{resource=\"pods\"} 2\n",
        "cached_pods 2\n", "cached_nodes 1\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
}

TEST(Metrics, CallsCountByVerbResourceAndCode) {
  const ManualClock clock;
  kube::FakeCluster cluster(clock);
  ApiCalls calls;
  kube::ClientOptions options;
  options.max_retry_after = 0ms;
  options.answered = [&](const kube::CallName& call, int code) { calls.count(call, code); };
  const auto transport = kube::make_fake_transport(cluster);
  kube::Client client(transport, transport, nullptr, options);
  bool busy = true;
  cluster.set_faults([&](const http::Request&) -> std::optional<kube::Fault> {
    return std::exchange(busy, false) ? std::optional(kube::Fault{.status = 429}) : std::nullopt;
  });
  EXPECT_FALSE(client.get(kube::kPods, "default", "none"));
  EXPECT_TRUE(client.list(kube::kNodes, "", {}));
  const ApiCalls::Counts expected{
      {{"get", "pods", 404}, 1}, {{"get", "pods", 429}, 1}, {{"list", "nodes", 200}, 1}};
  EXPECT_EQ(calls.counts(), expected) << "a call that is repeated counts again";
  OperatorState state;
  state.calls = calls.counts();
  EXPECT_NE(operator_metrics(state).find(
                "api_calls_total{code=\"404\",resource=\"pods\",verb=\"get\"} 1\n"),
            std::string::npos)
      << operator_metrics(state);
}

}  // namespace
}  // namespace paceline
