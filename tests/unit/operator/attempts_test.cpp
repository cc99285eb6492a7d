// SPDX-License-Identifier: Apache-2.0
// One loss is one attempt, although two observers see it: rank 0's launcher (its member left) and
// the operator (the pod is gone).
#include <gtest/gtest.h>

#include "launcher/rendezvous/gang.hpp"
#include "tests/unit/operator/job_bench.hpp"

namespace paceline::plan {
namespace {

status::Report summary(const char* phase, int attempt, int restarts = 0) {
  status::Report report;
  report.phase = phase;
  report.attempt = attempt;
  report.restarts = restarts;
  return report;
}

TEST(Attempt, OneLossIsOneWhoeverHasCountedIt) {
  struct Case {
    const char* what;
    int lost;
    std::optional<status::Report> known;  // rank 0's report when the pod is replaced
    int attempt;
  };
  const Case cases[] = {
      {"nobody answers", 1, std::nullopt, 1},
      {"the launcher has not noticed", 1, summary("Running", 0), 1},
      {"the launcher has counted", 1, summary("Restarting", 1), 1},
      {"ranks had restarted in place before", 1, summary("Running", 3, 3), 4},
      {"and the launcher has counted the loss too", 1, summary("Restarting", 4, 3), 4},
      {"rank 0 is lost", 0, std::nullopt, 1},
      {"rank 0 is lost; it ran attempt 2 when last seen", 0, summary("Running", 2, 2), 3},
  };
  for (const Case& test : cases) {
    JobBench bench;
    bench.run();
    bench.pods.erase("j-w-" + std::to_string(test.lost) + "-0");
    bench.memory.summary = test.known;
    bench.settle();
    EXPECT_EQ(bench.status().attempt, test.attempt) << test.what;
    EXPECT_EQ(bench.status().restarts, test.known ? test.known->restarts : 0) << test.what;
    EXPECT_EQ(bench.pod(test.lost).incarnation, 1) << test.what;
  }
}

TEST(Attempt, CountedByTheLauncherBeforeThePodIsSeenToGo) {
  JobBench bench;
  bench.run();
  bench.memory.summary = summary("Restarting", 1);
  bench.settle();
  ASSERT_EQ(bench.status().attempt, 1) << "on record from the launcher";
  bench.end(1, 143);  // stopped from outside before it could report
  bench.settle();
  EXPECT_EQ(bench.status().attempt, 1);
  EXPECT_EQ(bench.pod(1).incarnation, 1);
}

TEST(Attempt, IsNotCountedWhileTheReplacementWaits) {
  JobBench bench(nlohmann::json{{"failurePolicy", {{"backoff", "10s"}}}});
  bench.run();
  bench.end(1, 137);
  for (int i = 0; i < 3; ++i) {
    bench.memory.summary = summary("Restarting", 1);
    bench.settle();
  }
  EXPECT_EQ(bench.status().attempt, 0) << "on record with the pods that belong to it";
  bench.advance(std::chrono::seconds(10));
  bench.settle();
  EXPECT_EQ(bench.status().attempt, 1);
  EXPECT_EQ(bench.status().restarts, 1);
  EXPECT_EQ(bench.pod(1).incarnation, 1);
}

TEST(Attempt, AReplacementComesAlthoughTheClockWasSetBack) {
  JobBench bench(nlohmann::json{{"failurePolicy", {{"backoff", "10s"}}}});
  bench.run();
  bench.end(1, 137);
  bench.settle();
  ASSERT_EQ(bench.status().phase, "Restarting");
  bench.now -= std::chrono::hours(1);
  bench.settle();
  EXPECT_EQ(bench.pod(1).incarnation, 1) << "the gang waits for it";
}

TEST(Attempt, ASecondLossBeforeTheGangHasGatheredIsTheSameAttempt) {
  JobBench bench(nlohmann::json{{"roles", nlohmann::json::array({[] {
                                   JobBench small;
                                   return nlohmann::json{
                                       {"name", "w"},
                                       {"replicas", 3},
                                       {"template", small.job.job.spec.roles[0].pod_template}};
                                 }()})}});
  bench.run();
  bench.pods.erase("j-w-1-0");
  bench.memory.summary = summary("Restarting", 1);
  bench.settle();
  bench.pods.erase("j-w-2-0");
  bench.memory.summary = summary("Restarting", 1);
  bench.settle();
  EXPECT_EQ(bench.status().attempt, 1) << "attempt 1 has not started yet";
  EXPECT_EQ(bench.pod(1).incarnation, 1);
  EXPECT_EQ(bench.pod(2).incarnation, 1);
}

/// Runs the launchers' own state machine beside the operator's plan. Both arrive at the same
/// number, in whichever way they see the loss.
struct BothSides {
  explicit BothSides(int restarts_in_place) {
    bench.run();
    gang.emplace(config(0));
    join(0, 0);
    join(1, 0);
    for (int i = 0; i < restarts_in_place; ++i) {
      gang->on_message(connection(1),
                       rendezvous::Failed{gang->attempt(), {0, 1, std::nullopt, false, "Exit", {}}},
                       {});
      for (const int rank : {0, 1})
        gang->on_message(connection(rank), rendezvous::Stopped{gang->attempt() - 1}, SteadyTime{});
    }
  }

  static rendezvous::GangConfig config(int seed) {
    rendezvous::GangConfig config;
    config.job_uid = "job";
    config.token = "t";
    config.node_count = 2;
    config.max_restarts = 3;
    config.attempt = seed;
    config.master_port = [](int) { return std::uint16_t{29500}; };
    return config;
  }
  rendezvous::ConnectionId connection(int rank) const {
    return connections[static_cast<std::size_t>(rank)];
  }
  void join(int rank, int attempt) {
    rendezvous::Hello hello;
    hello.token = "t";
    hello.job_uid = "job";
    hello.node.node_rank = rank;
    hello.node.incarnation = bench.pod(rank).incarnation;
    hello.attempt = attempt;
    gang->on_message(connections[static_cast<std::size_t>(rank)] = ++last, hello, SteadyTime{});
  }
  void look() {
    bench.memory.summary =
        summary(std::string(to_string(gang->phase())).c_str(), gang->attempt(), gang->restarts());
  }

  JobBench bench;
  std::optional<rendezvous::Gang> gang;
  std::vector<rendezvous::ConnectionId> connections{0, 0};
  rendezvous::ConnectionId last = 0;
};

TEST(Attempt, LaunchersAndOperatorAgreeAfterAMemberIsLost) {
  for (const int in_place : {0, 2}) {
    for (const bool noticed_first : {true, false}) {
      BothSides world(in_place);
      if (noticed_first) world.gang->on_closed(world.connection(1), {});
      world.bench.pods.erase("j-w-1-0");
      world.look();
      world.bench.settle();
      EXPECT_EQ(world.bench.status().attempt, in_place + 1);
      if (!noticed_first) world.gang->on_closed(world.connection(1), {});
      world.gang->on_message(world.connection(0), rendezvous::Stopped{in_place}, SteadyTime{});
      world.join(1, world.bench.status().attempt);
      EXPECT_EQ(world.gang->phase(), rendezvous::GangPhase::kRunning);
      EXPECT_EQ(world.gang->attempt(), in_place + 1)
          << (noticed_first ? "launcher" : "operator") << " saw it first";
      EXPECT_EQ(world.gang->restarts(), in_place);
    }
  }
}

TEST(Attempt, LaunchersAndOperatorAgreeAfterRankZeroIsLost) {
  BothSides world(2);
  world.look();
  world.bench.settle();  // the operator has seen attempt 2
  world.bench.pods.erase("j-w-0-0");
  world.bench.settle();
  EXPECT_EQ(world.bench.status().attempt, 3);
  world.gang.emplace(BothSides::config(world.bench.status().attempt));
  world.join(1, 2);  // the survivor knows the attempt that it ran
  world.join(0, world.bench.status().attempt);
  EXPECT_EQ(world.gang->attempt(), 3);
}

}  // namespace
}  // namespace paceline::plan
