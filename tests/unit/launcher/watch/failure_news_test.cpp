// SPDX-License-Identifier: Apache-2.0
#include "launcher/watch/failure_news.hpp"

#include <gtest/gtest.h>

#include "tests/unit/launcher/rendezvous/gang_fixture.hpp"

namespace paceline::launcher {
namespace {

using rendezvous::Cause;
using rendezvous::Failed;
using rendezvous::GangPhase;
using rendezvous::Stopped;

struct FailureNewsOfGang : rendezvous::GangTest {
  FailureNews news;
};

TEST_F(FailureNewsOfGang, IsToldOnceAlsoWhenTheGangHasRestartedInPlace) {
  gather();
  EXPECT_FALSE(news.next(gang));
  say(1, Failed{0, killed(1)});
  settle(0);
  say(1, Stopped{0});
  say(2, Stopped{0});
  ASSERT_EQ(gang.phase(), GangPhase::kRunning);
  ASSERT_EQ(gang.attempt(), 1);
  const auto told = news.next(gang);
  ASSERT_TRUE(told);
  EXPECT_EQ(told->rank, 1);
  EXPECT_FALSE(news.next(gang));
  say(2, Failed{1, killed(0)});
  settle(1);
  ASSERT_EQ(gang.phase(), GangPhase::kFailed);
  EXPECT_EQ(news.next(gang)->rank, 2);
}

TEST_F(FailureNewsOfGang, IsToldOfTheRankThatWasFirst) {
  gather();
  say(1, Failed{0, raised(0, Cause::kPeer, std::chrono::milliseconds(0))});
  EXPECT_FALSE(news.next(gang)) << "its peer may still report";
  say(2, Failed{0, killed(1)});
  EXPECT_FALSE(news.next(gang)) << "others may still report";
  settle(0);
  ASSERT_TRUE(gang.culprit());
  EXPECT_EQ(news.next(gang)->rank, 3);
}

}  // namespace
}  // namespace paceline::launcher
