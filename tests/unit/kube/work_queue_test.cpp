// SPDX-License-Identifier: Apache-2.0
#include "common/kube/control/work_queue.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace paceline::kube {
namespace {

using namespace std::chrono_literals;

TEST(WorkQueue, KeyWaitsOnceAndInOrder) {
  const ManualClock clock;
  WorkQueue queue(clock);
  EXPECT_TRUE(queue.add("a"));
  EXPECT_TRUE(queue.add("b"));
  EXPECT_TRUE(queue.add("a"));
  EXPECT_EQ(queue.try_get(), "a");
  EXPECT_EQ(queue.try_get(), "b");
  EXPECT_EQ(queue.try_get(), std::nullopt);
}

TEST(WorkQueue, KeyAddedDuringItsWorkComesBackAfterIt) {
  const ManualClock clock;
  WorkQueue queue(clock);
  queue.add("a");
  ASSERT_EQ(queue.try_get(), "a");
  queue.add("a");
  queue.add("a");
  EXPECT_EQ(queue.try_get(), std::nullopt) << "one worker per key";
  queue.done("a");
  EXPECT_EQ(queue.try_get(), "a");
  queue.done("a");
  EXPECT_EQ(queue.try_get(), std::nullopt);
}

TEST(WorkQueue, SaysWhenAKeyIsDue) {
  ManualClock clock;
  WorkQueue queue(clock);
  EXPECT_EQ(queue.due("a"), std::nullopt);
  queue.add_after("a", 5s);
  EXPECT_EQ(queue.due("a"), clock.steady() + 5s);
  queue.add("a");
  EXPECT_EQ(queue.due("a"), clock.steady());
}

TEST(WorkQueue, EarliestOfSeveralDelaysWins) {
  ManualClock clock;
  WorkQueue queue(clock);
  queue.add_after("a", 10s);
  queue.add_after("a", 5s);
  queue.add_after("a", 20s);
  EXPECT_EQ(queue.next_due(), clock.steady() + 5s);
  clock.advance(4999ms);
  EXPECT_EQ(queue.try_get(), std::nullopt);
  clock.advance(1ms);
  EXPECT_EQ(queue.try_get(), "a");
  queue.done("a");
  clock.advance(1h);
  EXPECT_EQ(queue.try_get(), std::nullopt) << "the later times were given up";
}

TEST(WorkQueue, BackOffDoublesUntilForgotten) {
  ManualClock clock;
  WorkQueue queue(clock, {.capacity = 10, .min_backoff = 100ms, .max_backoff = 1s});
  std::vector<std::chrono::nanoseconds> delays;
  for (int i = 0; i < 6; ++i) {
    queue.add_backoff("a");
    delays.push_back(*queue.next_due() - clock.steady());
    clock.advance(delays.back());
    ASSERT_EQ(queue.try_get(), "a");
    queue.done("a");
  }
  EXPECT_EQ(delays, (std::vector<std::chrono::nanoseconds>{100ms, 200ms, 400ms, 800ms, 1s, 1s}));
  queue.forget("a");
  queue.add_backoff("a");
  EXPECT_EQ(*queue.next_due() - clock.steady(), 100ms);
}

TEST(WorkQueue, FullQueueRefusesAndSaysSo) {
  const ManualClock clock;
  WorkQueue queue(clock, {.capacity = 2});
  EXPECT_TRUE(queue.add("a"));
  EXPECT_TRUE(queue.add_after("b", 1s));
  EXPECT_FALSE(queue.add("c"));
  EXPECT_TRUE(queue.add("a")) << "already there";
  EXPECT_TRUE(queue.take_overflowed());
  EXPECT_FALSE(queue.take_overflowed());
}

TEST(WorkQueue, ManyWorkersNeverShareAKeyAndLoseNone) {
  const SystemClock clock;
  WorkQueue queue(clock);
  std::array<std::atomic<int>, 16> busy{};
  std::array<std::atomic<int>, 16> runs{};
  std::atomic<bool> shared{false};
  {
    std::vector<std::jthread> workers;
    for (int i = 0; i < 4; ++i) {
      workers.emplace_back([&](const std::stop_token& stop) {
        while (auto key = queue.get(stop)) {
          const auto index = static_cast<std::size_t>(std::stoi(*key));
          if (busy[index]++ != 0) shared = true;
          ++runs[index];
          std::this_thread::yield();
          --busy[index];
          queue.done(*key);
        }
      });
    }
    for (int round = 0; round < 200; ++round) {
      for (int key = 0; key < 16; ++key) queue.add(std::to_string(key));
    }
    while (queue.size() > 0) std::this_thread::sleep_for(1ms);
    queue.shut_down();
    queue.wait_idle();
  }
  EXPECT_FALSE(shared);
  for (const auto& count : runs) EXPECT_GE(count, 1);
}

TEST(WorkQueue, DelayedKeyWakesAWaitingWorker) {
  const SystemClock clock;
  WorkQueue queue(clock);
  std::optional<std::string> got;
  {
    const std::jthread worker([&](const std::stop_token& stop) { got = queue.get(stop); });
    std::this_thread::sleep_for(20ms);
    queue.add_after("a", 30ms);
    for (int i = 0; i < 6000 && queue.size() > 0; ++i) std::this_thread::sleep_for(10ms);
  }
  EXPECT_EQ(got, "a");
}

}  // namespace
}  // namespace paceline::kube
