// SPDX-License-Identifier: Apache-2.0
// Faults that the simulation and the fuzzer found once.
#include <gtest/gtest.h>

#include "operator/status/phase.hpp"
#include "tests/unit/operator/job_bench.hpp"

namespace paceline::plan {
namespace {

TEST(Recovery, APlacementThatIsNotOfThisSpecIsTakenBack) {
  // A user who may write the status can write this. The operator must neither crash nor create pods
  // because of it.
  for (const bool roles : {true, false}) {
    JobBench bench;
    bench.run();
    if (roles) {
      bench.job.status.roles.clear();
    } else {
      bench.job.status.set_nodes({"n0", "n0", "n0"});
    }
    const Plan plan = bench.step();
    EXPECT_TRUE(plan.creates.empty());
    EXPECT_EQ(plan.deletes.size(), 2U);
    EXPECT_FALSE(plan.status.placed());
    EXPECT_TRUE(plan.status.is(status::kPlaced, "StatusDamaged"));
  }
}

TEST(Recovery, OneSuccessIsTheGangsWhenRankZeroIsLostOnItsWayOut) {
  JobBench bench({{"successPolicy", "RankZero"}, {"failurePolicy", {{"maxRestarts", 0}}}});
  bench.run();
  bench.end(1, 0, {{"version", 1}, {"verdict", "Succeeded"}, {"attempt", 0}, {"restarts", 0}});
  bench.end(0, 137);
  bench.settle();
  EXPECT_TRUE(bench.status().is_true(status::kSucceeded))
      << api::write_status(bench.status()).dump(1);
}

}  // namespace
}  // namespace paceline::plan
