// SPDX-License-Identifier: Apache-2.0
#include "common/telemetry/ring/amendment_merger.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "testing/ring_fixture.hpp"

namespace paceline::telemetry {
namespace {

using test::step;

struct Fixture : ::testing::Test {
  ManualClock clock;
  std::vector<paceline_step_record> taken;
  AmendmentMerger::Take take = [this](const paceline_step_record& record) {
    taken.push_back(record);
  };

  static paceline_step_record amendment(std::uint64_t number) {
    auto record = step(number);
    record.kind = PACELINE_KIND_AMENDMENT;
    record.valid = PACELINE_VALID_DEVICE_NS | PACELINE_VALID_COMM_TOTAL_NS;
    record.device_ns[PACELINE_PHASE_FORWARD] = 5;
    record.comm_total_ns = 77;
    record.samples = 9999;  // its valid bit is not set, so it must not count
    return record;
  }
};

using Merger = Fixture;

TEST_F(Merger, PassesStepsOnAtOnceWhereNothingFollows) {
  AmendmentMerger merger(false);
  merger.add(step(1), clock.steady(), take);
  EXPECT_EQ(taken.size(), 1U);
}

TEST_F(Merger, ASourceThatStartsLateMakesTheNextStepsWait) {
  AmendmentMerger merger(false);
  merger.add(step(1), clock.steady(), take);
  merger.expect_amendments();
  merger.add(step(2), clock.steady(), take);
  EXPECT_EQ(taken.size(), 1U);
  merger.add(amendment(2), clock.steady(), take);
  merger.flush(take);
  ASSERT_EQ(taken.size(), 2U);
  EXPECT_EQ(taken[1].comm_total_ns, 77U);
  EXPECT_EQ(merger.late(), 0U);
}

TEST_F(Merger, ALongStepWaitsTwiceItsLengthAndTwoMinutesAtMost) {
  for (const auto& [wall, waits] : {std::pair{1, 5}, std::pair{20, 40}, std::pair{600, 120}}) {
    AmendmentMerger merger(true);
    taken.clear();
    auto record = step(1);
    record.wall_ns = static_cast<std::uint64_t>(wall) * 1'000'000'000;
    merger.add(record, clock.steady(), take);
    clock.advance(std::chrono::seconds(waits) - std::chrono::milliseconds(1));
    merger.expire(clock.steady(), take);
    EXPECT_TRUE(taken.empty());
    clock.advance(std::chrono::seconds(1));
    merger.expire(clock.steady(), take);
    EXPECT_EQ(taken.size(), 1U);
  }
}

TEST_F(Merger, OverridesOnlyFieldsWhoseBitIsSet) {
  AmendmentMerger merger(true);
  merger.add(step(1), clock.steady(), take);
  merger.add(amendment(1), clock.steady(), take);
  EXPECT_TRUE(taken.empty());
  merger.flush(take);
  ASSERT_EQ(taken.size(), 1U);
  EXPECT_EQ(taken[0].samples, 32U);
  EXPECT_EQ(taken[0].comm_total_ns, 77U);
  EXPECT_EQ(taken[0].device_ns[PACELINE_PHASE_FORWARD], 5U);
  EXPECT_EQ(taken[0].host_ns[PACELINE_PHASE_FORWARD], 6'000'000U);
  EXPECT_NE(taken[0].valid & PACELINE_VALID_HOST_NS, 0U);
  EXPECT_NE(taken[0].valid & PACELINE_VALID_DEVICE_NS, 0U);
}

TEST_F(Merger, ExportsOnceAndCountsWhatCameTooLate) {
  AmendmentMerger merger(true);
  merger.add(step(1), clock.steady(), take);
  clock.advance(std::chrono::seconds(5));
  merger.expire(clock.steady(), take);
  EXPECT_EQ(taken.size(), 1U);
  merger.add(amendment(1), clock.steady(), take);
  merger.flush(take);
  EXPECT_EQ(taken.size(), 1U);
  EXPECT_EQ(merger.late(), 1U);
}

TEST_F(Merger, WaitsForAtMost64Steps) {
  AmendmentMerger merger(true);
  for (std::uint64_t number = 1; number <= 100; ++number)
    merger.add(step(number), clock.steady(), take);
  ASSERT_EQ(taken.size(), 36U);
  EXPECT_EQ(taken.front().step, 1U);
}

TEST_F(Merger, AnotherAttemptIsAnotherStep) {
  AmendmentMerger merger(true);
  merger.add(step(1), clock.steady(), take);
  auto other = amendment(1);
  other.attempt = 1;
  merger.add(other, clock.steady(), take);
  EXPECT_EQ(merger.late(), 1U);
}

}  // namespace
}  // namespace paceline::telemetry
