// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "tests/sim/schedule.hpp"

namespace paceline::sim {
namespace {

std::uint64_t number_of(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

/// Every test runs PACELINE_SIM_SCHEDULES seeds in order (default 700) and prints how many it ran:
/// all tests together run more than 10,000. With PACELINE_SIM_SECONDS it runs seeds for that time.
/// PACELINE_SIM_SEED runs one seed only.
void schedules(std::uint64_t from, const Rates& rates) {
  const std::uint64_t only = number_of("PACELINE_SIM_SEED", 0);
  const auto seconds = std::chrono::seconds(number_of("PACELINE_SIM_SECONDS", 0));
  const std::uint64_t enough = only > 0 ? 1 : number_of("PACELINE_SIM_SCHEDULES", 700);
  const auto began = std::chrono::steady_clock::now();
  const auto more = [&](std::uint64_t done) {
    return seconds.count() > 0 && only == 0 ? std::chrono::steady_clock::now() < began + seconds
                                            : done < enough;
  };
  std::uint64_t seed = only > 0 ? only : from;
  std::uint64_t done = 0;
  for (; more(done); ++seed, ++done) {
    const auto broken = run_schedule(seed, rates);
    ASSERT_FALSE(broken.has_value()) << broken->what;
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  std::printf("%llu schedules, %.0f a second\n", static_cast<unsigned long long>(done),
              static_cast<double>(done) / took.count());
}

TEST(Simulation, Calm) { schedules(1, {}); }
TEST(Simulation, CalmAndFresh) { schedules(100'000, {.fresh = true}); }
TEST(Simulation, Crashes) { schedules(1'000'000, {.crash = 0.1, .restart = 0.02}); }
TEST(Simulation, ApiFaults) { schedules(2'000'000, {.fail = 0.1, .lost = 0.1}); }
TEST(Simulation, PodsDie) {
  schedules(3'000'000, {.kill_pod = 0.02, .fail_rank = 0.02, .delete_pod = 0.02});
}
TEST(Simulation, NodesGoSilent) { schedules(4'000'000, {.delete_pod = 0.01, .lose_node = 0.03}); }
TEST(Simulation, WatchesBreak) {
  schedules(5'000'000, {.kill_pod = 0.01, .delete_pod = 0.02, .relist = 0.1, .repeat = 0.1});
}
TEST(Simulation, TwoLeaders) {
  schedules(6'000'000, {.fail = 0.02, .kill_pod = 0.01, .delete_pod = 0.02, .second_leader = 0.05});
}
TEST(Simulation, ClockJumps) {
  schedules(7'000'000, {.delete_pod = 0.01, .lose_node = 0.02, .clock_jump = 0.05});
}
TEST(Simulation, NodesGetTaintsAndForeignPods) {
  schedules(9'000'000, {.kill_pod = 0.02, .delete_pod = 0.02, .taint = 0.03, .foreign = 0.05});
}
TEST(Simulation, PodsAreKeptAfterTheirEnd) {
  schedules(26'000'000, {.crash = 0.01,
                         .kill_pod = 0.02,
                         .evict = 0.01,
                         .delete_pod = 0.03,
                         .keep = 0.5,
                         .lose_node = 0.01,
                         .spec_change = 0.01,
                         .restart = 0.01});
}
TEST(Simulation, NodesAreMarkedAndNothingElseHappens) {
  schedules(24'000'000, {.taint = 0.02, .mark = 0.05, .fresh = true});
}
TEST(Simulation, NodesAreMarkedAndDrained) {
  schedules(25'000'000, {.crash = 0.02,
                         .fail = 0.02,
                         .lost = 0.02,
                         .kill_pod = 0.005,
                         .fail_rank = 0.005,
                         .delete_pod = 0.02,
                         .lose_node = 0.01,
                         .taint = 0.02,
                         .mark = 0.05,
                         .restart = 0.01,
                         .relist = 0.02,
                         .repeat = 0.02,
                         .elastic = 0.2});
}
TEST(Simulation, NodesGoSilentTogether) {
  schedules(
      10'000'000,
      {.delete_pod = 0.01, .lose_node = 0.01, .spec_change = 0.01, .outage = 0.03, .fresh = true});
}
TEST(Simulation, GangsAreSuspendedAtTheEnd) {
  schedules(11'000'000, {.spec_change = 0.05, .fresh = true});
}
TEST(Simulation, JobsAreEditedWhileNoOperatorRuns) {
  schedules(12'000'000, {.kill_pod = 0.02, .delete_pod = 0.01, .edit_away = 0.02});
}
TEST(Simulation, JobsAreDeletedWhileTheyRun) {
  schedules(13'000'000, {.fail = 0.02, .delete_pod = 0.01, .delete_job = 0.01});
}
TEST(Simulation, SomePodsAreRefused) {
  schedules(14'000'000, {.crash = 0.01, .fail = 0.02, .refuse = 0.1, .delete_pod = 0.01});
}
TEST(Simulation, PodsAreEvicted) {
  schedules(15'000'000, {.crash = 0.01, .kill_pod = 0.01, .evict = 0.05});
}
TEST(Simulation, SomeReplicasFailAlone) {
  schedules(17'000'000, {.kill_pod = 0.02,
                         .fail_rank = 0.02,
                         .evict = 0.02,
                         .delete_pod = 0.03,
                         .lose_node = 0.01,
                         .roles = 1,
                         .fresh = true});
}
TEST(Simulation, RulesSayWhatAKillCosts) {
  schedules(18'000'000, {.crash = 0.01,
                         .kill_pod = 0.05,
                         .fail_rank = 0.01,
                         .evict = 0.01,
                         .rules = 0.8,
                         .fresh = true});
}
TEST(Simulation, KueueAdmitsAndEvicts) {
  schedules(19'000'000, {.crash = 0.02,
                         .fail = 0.02,
                         .lost = 0.02,
                         .kill_pod = 0.01,
                         .delete_pod = 0.01,
                         .spec_change = 0.01,
                         .relist = 0.02,
                         .repeat = 0.02,
                         .kueue = 1,
                         .kueue_evict = 0.1});
}
TEST(Simulation, KueueAdmitsParts) {
  schedules(23'000'000, {.crash = 0.02,
                         .fail = 0.02,
                         .lost = 0.02,
                         .kill_pod = 0.01,
                         .delete_pod = 0.01,
                         .lose_node = 0.02,
                         .relist = 0.02,
                         .repeat = 0.02,
                         .kueue = 1,
                         .kueue_evict = 0.02,
                         .elastic = 0.9,
                         .resize = 0.05});
}
TEST(Simulation, WorkersChangeInNumber) {
  schedules(20'000'000, {.kill_pod = 0.01,
                         .delete_pod = 0.02,
                         .lose_node = 0.02,
                         .elastic = 0.8,
                         .resize = 0.05,
                         .fresh = true});
}
TEST(Simulation, WorkersChangeInNumberAndEverythingFails) {
  schedules(21'000'000, {.crash = 0.05,
                         .fail = 0.05,
                         .lost = 0.05,
                         .refuse = 0.01,
                         .meanwhile = 0.2,
                         .kill_pod = 0.01,
                         .fail_rank = 0.01,
                         .evict = 0.01,
                         .delete_pod = 0.01,
                         .lose_node = 0.02,
                         .spec_change = 0.01,
                         .taint = 0.01,
                         .foreign = 0.02,
                         .edit_away = 0.005,
                         .restart = 0.01,
                         .second_leader = 0.01,
                         .clock_jump = 0.01,
                         .relist = 0.02,
                         .repeat = 0.02,
                         .rules = 0.1,
                         .kueue = 0.1,
                         .kueue_evict = 0.02,
                         .elastic = 0.8,
                         .resize = 0.05});
}
TEST(Simulation, WorkersChangeInNumberAndNodesCome) {
  schedules(22'000'000, {.crash = 0.02,
                         .fail = 0.02,
                         .kill_pod = 0.01,
                         .delete_pod = 0.02,
                         .lose_node = 0.02,
                         .restart = 0.01,
                         .grow = 0.05,
                         .elastic = 0.8,
                         .resize = 0.05,
                         .fresh = true});
}
TEST(Simulation, RequestsComeLateAndTwice) {
  schedules(27'000'000, {.late = 0.1,
                         .twice = 0.1,
                         .kill_pod = 0.01,
                         .delete_pod = 0.03,
                         .spec_change = 0.01,
                         .relist = 0.01,
                         .repeat = 0.02,
                         .bookmark = 0.1,
                         .kueue = 0.3,
                         .kueue_evict = 0.02,
                         .elastic = 0.2,
                         .resize = 0.02});
}
TEST(Simulation, RightsComeAndGo) {
  schedules(28'000'000, {.forbid = 0.05,
                         .kill_pod = 0.01,
                         .delete_pod = 0.02,
                         .spec_change = 0.02,
                         .restart = 0.01,
                         .kueue = 0.3,
                         .kueue_evict = 0.05});
}
TEST(Simulation, NodesAreReplacedRelabelledAndShrink) {
  schedules(29'000'000, {.delete_pod = 0.02,
                         .lose_node = 0.01,
                         .restart = 0.01,
                         .elastic = 0.2,
                         .replace_node = 0.03,
                         .relabel = 0.03,
                         .shrink = 0.03});
}
TEST(Simulation, PeopleInterfere) {
  schedules(30'000'000,
            {.crash = 0.01, .delete_pod = 0.01, .recreate = 0.02, .strip = 0.03, .limit = 0.02});
}
TEST(Simulation, KueueChanges) {
  schedules(31'000'000, {.delete_pod = 0.01,
                         .spec_change = 0.01,
                         .kueue = 1,
                         .kueue_evict = 0.03,
                         .elastic = 0.3,
                         .resize = 0.02,
                         .kueue_change = 0.05,
                         .fresh = true});
}
TEST(Simulation, ImagesAreMissing) {
  schedules(16'000'000, {.fail = 0.02, .delete_pod = 0.01, .bad_image = 0.4});
}
TEST(Simulation, NodesComeWhenTheyAreAskedFor) {
  schedules(18'000'000, {.grow = 0.02, .fresh = true});
}
TEST(Simulation, NodesComeAndEverythingFails) {
  schedules(19'000'000, {.crash = 0.05,
                         .fail = 0.05,
                         .lost = 0.05,
                         .refuse = 0.01,
                         .meanwhile = 0.2,
                         .kill_pod = 0.01,
                         .evict = 0.005,
                         .delete_pod = 0.02,
                         .lose_node = 0.01,
                         .spec_change = 0.01,
                         .taint = 0.01,
                         .foreign = 0.01,
                         .edit_away = 0.005,
                         .delete_job = 0.003,
                         .restart = 0.02,
                         .second_leader = 0.01,
                         .clock_jump = 0.01,
                         .relist = 0.02,
                         .repeat = 0.02,
                         .grow = 0.02});
}
TEST(Simulation, Everything) {
  schedules(8'000'000, {.crash = 0.05,
                        .fail = 0.05,
                        .lost = 0.05,
                        .refuse = 0.01,
                        .meanwhile = 0.2,
                        .kill_pod = 0.01,
                        .fail_rank = 0.01,
                        .evict = 0.005,
                        .delete_pod = 0.01,
                        .lose_node = 0.01,
                        .spec_change = 0.01,
                        .taint = 0.01,
                        .mark = 0.01,
                        .outage = 0.005,
                        .foreign = 0.01,
                        .edit_away = 0.005,
                        .delete_job = 0.003,
                        .restart = 0.01,
                        .second_leader = 0.01,
                        .clock_jump = 0.01,
                        .relist = 0.02,
                        .repeat = 0.02,
                        .bad_image = 0.05,
                        .rules = 0.1,
                        .kueue = 0.2,
                        .kueue_evict = 0.02});
}

/// For every write of a run: crash before it and after it. The end is the same, and nothing is
/// created twice. A quota makes the gang a gated one.
void crash_at_every_write(bool gated) {
  const auto run = [gated](int write, bool after, bool& fired) {
    World world(7, 2, 4);
    if (gated) world.add_quota(3);
    if (write > 0) world.arm(write, after);
    world.add_job({.name = "a", .replicas = 3, .cpu = 2, .max_restarts = 3});
    EXPECT_TRUE(world.settle(200));
    fired = write > 0 && !world.armed();
    EXPECT_EQ(world.phase("a"), "Succeeded")
        << "crash at write " << write << (after ? " after" : " before");
    EXPECT_EQ(world.status("a").value("attempt", -1), 0);
    return world.cluster().counts().creates;
  };
  bool fired = false;
  const std::uint64_t reference = run(0, false, fired);
  int points = 0;
  for (int write = 1; write < 100; ++write) {
    for (const bool after : {false, true}) {
      EXPECT_EQ(run(write, after, fired), reference)
          << "crash at write " << write << (after ? " after" : " before");
      points += fired ? 1 : 0;
    }
    if (!fired) break;
  }
  EXPECT_GE(points, gated ? 20 : 12);
}

TEST(Simulation, CrashAtEveryWriteOfAnOpenGang) { crash_at_every_write(false); }
TEST(Simulation, CrashAtEveryWriteOfAGatedGang) { crash_at_every_write(true); }

TEST(Simulation, GangsThatDoNotFitTogetherRunOneAfterTheOther) {
  World world(1, 2, 4);
  world.add_job({.name = "first", .replicas = 2, .cpu = 3});
  world.add_job({.name = "second", .replicas = 2, .cpu = 3});
  world.drain();
  EXPECT_EQ(world.facts().pods.size(), 2U);
  const std::string waiting = world.phase("first") == "Queued" ? "first" : "second";
  EXPECT_EQ(world.status(waiting)["reason"], "WaitingForRoom") << world.status(waiting).dump(1);
  EXPECT_TRUE(world.settle(200));
  EXPECT_EQ(world.phase("first"), "Succeeded");
  EXPECT_EQ(world.phase("second"), "Succeeded");
}

TEST(Simulation, AReplacementThatMissedTheVerdictHoldsNothingUp) {
  World world(1, 3, 4);
  world.add_job({.name = "a", .replicas = 3});
  const auto say = [&](const std::string& pod, const std::string& state, const std::string& phase) {
    const std::string node = world.facts().pods.at(pod).pinned;
    world.cluster().poke(kube::kPods, "default", pod,
                         R"({"spec":{"nodeName":")" + node + R"("},"status":{"phase":")" + phase +
                             R"(","containerStatuses":[{"name":"trainer","state":)" + state +
                             "}]}}");
  };
  world.drain();
  for (const char* pod : {"a-w-0-0", "a-w-1-0", "a-w-2-0"})
    say(pod, R"({"running":{}})", "Running");
  world.drain();
  ASSERT_EQ(world.phase("a"), "Running");
  ASSERT_TRUE(world.cluster().erase(kube::kPods, "default", "a-w-1-0"));
  world.drain();  // its replacement is created, and will wait for a gang that never comes
  ASSERT_TRUE(world.facts().pods.contains("a-w-1-1"));
  say("a-w-2-0", R"({"terminated":{"exitCode":0}})", "Succeeded");
  world.drain();
  EXPECT_EQ(world.phase("a"), "Running") << "rank 0 is about to say what the whole job measured";
  say("a-w-0-0", R"({"terminated":{"exitCode":0}})", "Succeeded");
  world.drain();
  EXPECT_EQ(world.phase("a"), "Succeeded");
  EXPECT_TRUE(world.settle(200));
  EXPECT_FALSE(world.facts().pods.contains("a-w-1-1"));
  EXPECT_EQ(world.facts().pods.size(), 2U) << "those that ended by themselves keep their logs";
}

/// A gang of 4,096 pods loses a few in every way.
void run_large(std::uint64_t seed, const std::vector<RoleShape>& roles) {
  constexpr int kSteps = 60;
  World world(seed, 128, 32);
  world.set_rates(
      {.kill_pod = 0.1, .fail_rank = 0.05, .evict = 0.1, .delete_pod = 0.1, .fresh = true});
  world.add_job({.name = "a", .replicas = 4096, .max_restarts = 100, .roles = roles});
  for (int i = 0; i < kSteps && !world.broken(); ++i) world.step();
  const bool rests = world.settle(kRounds);
  ASSERT_FALSE(world.broken().has_value()) << world.broken()->what;
  EXPECT_TRUE(rests);
  EXPECT_EQ(world.phase("a"), "Succeeded") << world.status("a")["message"];
  EXPECT_LE(world.operator_writes(), 2U * 4096U);
  EXPECT_TRUE(world.clear());
}

TEST(Simulation, FourThousandWorkers) { run_large(1, {}); }
TEST(Simulation, FourThousandWorkersAndServers) {
  using enum contract::RoleKind;
  run_large(2, {{kParameterServer, 95}, {kWorker, 4000}, {kEvaluator}});
}

TEST(Simulation, TooLargeSaysSoAndBlocksNobody) {
  World world(1, 2, 4);
  world.add_job({.name = "giant", .replicas = 3, .cpu = 4});
  world.add_job({.name = "small"});
  EXPECT_TRUE(world.settle(200));
  EXPECT_EQ(world.phase("small"), "Succeeded");
  EXPECT_EQ(world.phase("giant"), "Queued");
  EXPECT_EQ(world.status("giant")["reason"], "TooLarge");
}

}  // namespace
}  // namespace paceline::sim
