// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "tests/sim/world.hpp"

namespace paceline::sim {
namespace {

void schedule(std::uint64_t seed, const Rates& rates, int steps) {
  World world(seed, 3, 4);
  world.add_job("a", 2, 3, 3);
  world.add_job("b", 3, 2, 2);
  for (int i = 0; i < steps; ++i) {
    world.step(rates);
    if (i == steps / 2) world.add_job("c", 2, 1, 1);
    const auto broken = world.check();
    ASSERT_FALSE(broken.has_value()) << "seed " << seed << " step " << i << ": " << *broken;
  }
  const bool rest = world.settle(400);
  const auto broken = world.check();
  ASSERT_FALSE(broken.has_value()) << "seed " << seed << " while settling: " << *broken;
  ASSERT_TRUE(rest) << "seed " << seed << ": still writes; a " << world.job("a")["status"].dump() << "\nb "
                    << world.job("b")["status"].dump();
  for (const char* name : {"a", "b", "c"}) {
    const std::string phase = world.phase(name);
    ASSERT_TRUE(phase == "Succeeded" || (rates.kill_pod > 0 && phase == "Failed"))
        << "seed " << seed << ": " << name << " " << world.job(name)["status"].dump(1);
  }
  for (const char* name : {"a", "b", "c"})
    ASSERT_TRUE(world.api().remove(kube::kTrainingJobs, "default", name).has_value());
  world.cluster().collect_garbage();
  ASSERT_TRUE(world.settle(100));
  ASSERT_TRUE(world.cluster().objects(kube::kPods).empty()) << "seed " << seed << ": orphans";
}

/// Every test takes its seeds in order for PACELINE_SIM_SECONDS (default 4) and prints how far it came.
void schedules(std::uint64_t from, std::uint64_t count, const Rates& rates, int steps) {
  const char* seconds = std::getenv("PACELINE_SIM_SECONDS");
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds == nullptr ? 4 : std::atoi(seconds));
  for (std::uint64_t seed = from; seed < from + count; ++seed) {
    schedule(seed, rates, steps);
    if (::testing::Test::HasFatalFailure()) return;
    if (std::chrono::steady_clock::now() > end) {
      std::printf("%llu schedules\n", static_cast<unsigned long long>(seed - from + 1));
      return;
    }
  }
}

TEST(Simulation, Calm) { schedules(1, 200, {}, 300); }
TEST(Simulation, Crashes) { schedules(1000, 1000, {.crash = 0.1}, 200); }
TEST(Simulation, ApiFaults) { schedules(2000, 1000, {.fail = 0.1, .lost = 0.1}, 200); }
TEST(Simulation, PodsDie) { schedules(3000, 1000, {.kill_pod = 0.02, .delete_pod = 0.02}, 250); }
TEST(Simulation, NodesGoSilent) { schedules(4000, 1000, {.lose_node = 0.03}, 250); }
TEST(Simulation, Everything) {
  schedules(5000, 2000,
            {.crash = 0.05,
             .fail = 0.05,
             .lost = 0.05,
             .kill_pod = 0.01,
             .delete_pod = 0.01,
             .lose_node = 0.01,
             .spec_change = 0.01},
            300);
}

/// For every write of a run: crash before and after it; the end is the same and nothing is created twice.
TEST(Simulation, CrashAtEveryWrite) {
  const auto run = [](int write, bool after, bool& fired) {
    World world(7, 2, 4);
    if (write > 0) world.arm(write, after);
    world.add_job("a", 3, 2, 3);
    EXPECT_TRUE(world.settle(200));
    fired = write > 0 && !world.armed();
    EXPECT_EQ(world.phase("a"), "Succeeded") << "crash at write " << write << (after ? " after" : " before");
    EXPECT_EQ(world.job("a")["status"].value("attempt", -1), 0);
    return world.cluster().counts().creates;
  };
  bool fired = false;
  const std::uint64_t reference = run(0, false, fired);
  int points = 0;
  for (int write = 1; write < 100; ++write) {
    for (const bool after : {false, true}) {
      EXPECT_EQ(run(write, after, fired), reference) << "crash at write " << write << (after ? " after" : " before");
      points += fired ? 1 : 0;
    }
    if (!fired) break;
  }
  EXPECT_GE(points, 20);
}

TEST(Simulation, GangsThatDoNotFitTogetherRunOneAfterTheOther) {
  World world(1, 2, 4);
  world.add_job("first", 2, 3, 0);
  world.add_job("second", 2, 3, 0);
  world.drain_once();
  world.drain_once();
  EXPECT_EQ(world.pods().size(), 2U);
  const std::string waiting = world.phase("first") == "Queued" ? "first" : "second";
  EXPECT_EQ(world.job(waiting)["status"]["reason"], "WaitingForRoom") << world.job(waiting)["status"].dump(1);
  EXPECT_TRUE(world.settle(200));
  EXPECT_EQ(world.phase("first"), "Succeeded");
  EXPECT_EQ(world.phase("second"), "Succeeded");
}

TEST(Simulation, TooLargeSaysSoAndBlocksNobody) {
  World world(1, 2, 4);
  world.add_job("giant", 3, 4, 0);
  world.add_job("small", 1, 1, 0);
  EXPECT_TRUE(world.settle(200));
  EXPECT_EQ(world.phase("small"), "Succeeded");
  EXPECT_EQ(world.phase("giant"), "Queued");
  EXPECT_EQ(world.job("giant")["status"]["reason"], "TooLarge");
}

}  // namespace
}  // namespace paceline::sim
