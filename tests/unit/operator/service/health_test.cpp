// SPDX-License-Identifier: Apache-2.0
#include "operator/service/health.hpp"

#include <gtest/gtest.h>

namespace paceline {
namespace {

using namespace std::chrono_literals;

TEST(Health, AWorkerThatHangsIsNamed) {
  ManualClock clock;
  kube::WorkQueue queue(clock);
  EXPECT_EQ(health(queue, clock).status, 200) << "a standby has nothing to do";
  queue.add("ns/first");
  queue.add("ns/second");
  ASSERT_EQ(queue.try_get(), "ns/first");
  clock.advance(40min);
  ASSERT_EQ(queue.try_get(), "ns/second");
  clock.advance(20min);
  EXPECT_EQ(health(queue, clock).status, 200) << "a large gang takes its time";
  clock.advance(1min);
  EXPECT_EQ(health(queue, clock).status, 503);
  EXPECT_EQ(health(queue, clock).body, "a worker has been at ns/first for 61 minutes\n");
  queue.done("ns/first");
  EXPECT_EQ(health(queue, clock).status, 200) << "the other one began later";
  queue.add("ns/first");
  ASSERT_EQ(queue.try_get(), "ns/first");
  queue.done("ns/second");
  clock.advance(59min);
  EXPECT_EQ(health(queue, clock).status, 200) << "each time in hand counts alone";
}

}  // namespace
}  // namespace paceline
