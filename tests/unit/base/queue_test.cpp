// SPDX-License-Identifier: Apache-2.0
#include "common/base/queue.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace paceline {
namespace {

TEST(BoundedQueue, DropsTheNewestAndCounts) {
  BoundedQueue<int> queue(2, Overflow::kDropNewest);
  EXPECT_TRUE(queue.push(1));
  EXPECT_TRUE(queue.push(2));
  EXPECT_FALSE(queue.push(3));
  EXPECT_EQ(queue.dropped(), 1u);
  EXPECT_EQ(queue.pop(), 1);
}

TEST(BoundedQueue, DropsTheOldestAndCounts) {
  BoundedQueue<int> queue(2, Overflow::kDropOldest);
  for (int i = 1; i <= 3; ++i) EXPECT_TRUE(queue.push(i));
  EXPECT_EQ(queue.dropped(), 1u);
  EXPECT_EQ(queue.pop(), 2);
}

TEST(BoundedQueue, BlockingProducerWaitsForRoomAndLosesNothing) {
  BoundedQueue<int> queue(1, Overflow::kBlock);
  std::jthread producer([&] {
    for (int i = 0; i < 1000; ++i) EXPECT_TRUE(queue.push(i));
    queue.close();
  });
  int expected = 0;
  while (const auto item = queue.pop()) EXPECT_EQ(*item, expected++);
  EXPECT_EQ(expected, 1000);
  EXPECT_EQ(queue.dropped(), 0u);
}

TEST(BoundedQueue, StopEndsAWaitingPop) {
  BoundedQueue<int> queue(1, Overflow::kBlock);
  std::jthread consumer(
      [&](const std::stop_token& stop) { EXPECT_FALSE(queue.pop(stop).has_value()); });
  consumer.request_stop();
}

}  // namespace
}  // namespace paceline
