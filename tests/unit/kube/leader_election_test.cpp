// SPDX-License-Identifier: Apache-2.0
#include "common/kube/control/leader_election.hpp"

#include <gtest/gtest.h>

#include "common/kube/fake/cluster.hpp"

namespace paceline::kube {
namespace {

using namespace std::chrono_literals;

LeaderElectionOptions options_of(const char* identity) {
  return {.ns = "n", .name = "lease", .identity = identity};
}

class Election : public testing::Test {
 protected:
  ManualClock clock;
  FakeCluster cluster{clock};
  std::shared_ptr<Api> api = make_fake_api(cluster);
  LeaderElection first{*api, clock, options_of("first")};
  LeaderElection second{*api, clock, options_of("second")};
};

TEST_F(Election, LeaseOfADeadHolderIsTakenAfterItsWholeDurationOfSilence) {
  EXPECT_EQ(second.holder(), "");
  ASSERT_TRUE(first.step());
  ASSERT_FALSE(second.step());
  EXPECT_EQ(first.holder(), "first");
  EXPECT_EQ(second.holder(), "first");
  clock.advance(14s);
  EXPECT_FALSE(second.step());
  clock.advance(1s);
  EXPECT_TRUE(second.step());
  EXPECT_EQ(second.holder(), "second");
}

TEST_F(Election, RenewalsKeepTheOtherOut) {
  ASSERT_TRUE(first.step());
  for (int i = 0; i < 20; ++i) {
    clock.advance(2s);
    ASSERT_TRUE(first.step());
    ASSERT_FALSE(second.step()) << i;
  }
}

TEST_F(Election, WallClockThatJumpsDecidesNothing) {
  ASSERT_TRUE(first.step());
  ASSERT_FALSE(second.step());
  clock.jump_wall(24h);
  EXPECT_FALSE(second.step()) << "expiry is judged by how long the record stood still here";
  clock.jump_wall(-48h);
  EXPECT_TRUE(first.step());
  clock.advance(5s);
  EXPECT_FALSE(second.step());
}

TEST_F(Election, HolderThatCannotRenewStopsBeforeAnotherMayBegin) {
  ASSERT_TRUE(first.step());
  ASSERT_FALSE(second.step());
  bool cut = true;
  cluster.set_faults([&](const http::Request&) -> std::optional<Fault> {
    return cut ? std::optional(Fault{.status = 503}) : std::nullopt;
  });
  clock.advance(9s);
  EXPECT_TRUE(first.step()) << "a short outage is survived";
  clock.advance(1s);
  EXPECT_FALSE(first.step());
  cut = false;
  EXPECT_FALSE(second.step()) << "10 s < 15 s: there is a gap without any leader, never two";
}

TEST_F(Election, LostAnswerOfARenewalIsNotLossOfLeadership) {
  ASSERT_TRUE(first.step());
  cluster.set_faults([](const http::Request& request) -> std::optional<Fault> {
    if (request.method == "PUT") return Fault{.drop_after_apply = true};
    return std::nullopt;
  });
  clock.advance(2s);
  EXPECT_TRUE(first.step());
  cluster.set_faults(nullptr);
  clock.advance(2s);
  EXPECT_TRUE(first.step());
}

}  // namespace
}  // namespace paceline::kube
