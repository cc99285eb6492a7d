// SPDX-License-Identifier: Apache-2.0
// The places of operations: handles that are late, repeated or foreign, a full pool, threads.
#include "pool.hpp"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "check.hpp"

namespace paceline::nccl {
namespace {

int taken(Pool& pool) {
  int count = 0;
  pool.visit([&](const Pool::View&, std::size_t) {
    ++count;
    return true;
  });
  return count;
}

void clear(Pool& pool) {
  pool.visit([](const Pool::View&, std::size_t) { return false; });
}

CASE(a_stop_means_enqueued_and_the_channels_tell_the_end) {
  const auto pool = std::make_unique<Pool>();
  const Handle operation = pool->start({}, 2, 1);
  const Handle first = pool->start_kernel(operation, 100);
  pool->stop(operation, 0);
  const auto ended = [&] {
    bool seen = false;
    pool->visit([&](const Pool::View& view, std::size_t) {
      CHECK(view.enqueued);
      seen = view.channels_ended;
      return true;
    });
    return seen;
  };
  CHECK(!ended());
  pool->record_stop(first, 300);
  pool->stop(first, 0);
  CHECK(!ended());  // the second channel has not begun
  const Handle second = pool->start_kernel(operation, 90);
  CHECK(!ended());
  pool->record_stop(second, 250);
  pool->stop(second, 0);
  CHECK(ended());
  pool->visit([](const Pool::View& view, std::size_t) {
    CHECK_EQ(view.operation.start_ns, 90U);
    CHECK_EQ(view.operation.stop_ns, 300U);
    return false;
  });
}

CASE(events_of_a_freed_place_touch_no_other_operation) {
  const auto pool = std::make_unique<Pool>();
  const Handle old = pool->start({}, 1, 1);
  const Handle kernel = pool->start_kernel(old, 5);
  clear(*pool);
  // The same place again, one round later.
  for (std::size_t i = 1; i < Pool::kPlaces; ++i) pool->start({}, 1, 1);
  const Handle fresh = pool->start({}, 1, 1);
  CHECK(fresh != 0 && fresh != old);
  pool->record_stop(kernel, 50);
  pool->stop(kernel, 0);
  pool->stop(old, 0);
  CHECK_EQ(pool->start_kernel(old, 7), 0U);
  CHECK_EQ(pool->start_wait(kernel, 7), 0U);
  pool->visit([&](const Pool::View& view, std::size_t) {
    CHECK(!view.enqueued);
    CHECK(!view.channels_ended);
    return true;
  });
}

CASE(handles_of_nothing_are_dropped) {
  const auto pool = std::make_unique<Pool>();
  for (const Handle handle : {Handle{0}, Pool::kNoPlace, ~Handle{0}, Handle{1}, Handle{2},
                              Handle{3}, Handle{0x7fff12345670}}) {
    CHECK_EQ(pool->start_kernel(handle, 1), 0U);
    CHECK_EQ(pool->start_wait(handle, 1), 0U);
    pool->record_stop(handle, 1);
    pool->stop(handle, 1);
  }
  const Handle operation = pool->start({}, 1, 1);
  CHECK_EQ(pool->start_wait(operation, 1), 0U);  // waits belong to channels
  CHECK_EQ(pool->start_kernel(pool->start_kernel(operation, 1), 1), 0U);
  CHECK_EQ(taken(*pool), 1);
}

CASE(a_full_pool_gives_no_handle_and_recovers) {
  const auto pool = std::make_unique<Pool>();
  for (std::size_t i = 0; i < Pool::kPlaces; ++i) CHECK(pool->start({}, 1, 1) != 0);
  for (int i = 0; i < 100; ++i) CHECK_EQ(pool->start({}, 1, 1), 0U);
  CHECK_EQ(taken(*pool), static_cast<int>(Pool::kPlaces));
  clear(*pool);
  CHECK(pool->start({}, 1, 1) != 0);
}

CASE(times_that_cannot_be_are_not_used) {
  const auto pool = std::make_unique<Pool>();
  const struct {
    std::uint64_t start, stop;
  } wrong[] = {{100, 0}, {100, 99}, {0, 100}};
  for (const auto& [start, stop] : wrong) {
    const Handle operation = pool->start({}, 1, 1);
    const Handle kernel = pool->start_kernel(operation, start);
    pool->record_stop(kernel, stop);
    pool->stop(kernel, 0);
  }
  pool->visit([](const Pool::View& view, std::size_t) {
    CHECK(view.channels_ended);
    CHECK(!view.operation.timed());
    return false;
  });
}

CASE(threads_start_and_end_operations_while_another_collects) {
  const auto pool = std::make_unique<Pool>();
  constexpr int kThreads = 3;
  constexpr int kEach = 20'000;
  std::atomic<int> running{kThreads};
  std::atomic<int> refused{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kEach; ++i) {
        const Handle operation = pool->start({}, 1, 1);
        if (operation == 0) {
          refused.fetch_add(1);
          continue;
        }
        const Handle kernel = pool->start_kernel(operation, 10);
        pool->stop(operation, 0);
        pool->record_stop(kernel, 20);
        pool->stop(kernel, 0);
      }
      running.fetch_sub(1);
    });
  }
  int collected = 0;
  const auto collect = [&] {
    pool->visit([&](const Pool::View& view, std::size_t) {
      if (!view.enqueued || !view.channels_ended) return true;
      CHECK_EQ(view.operation.stop_ns - view.operation.start_ns, 10U);
      ++collected;
      return false;
    });
  };
  while (running.load() != 0) collect();
  for (std::thread& thread : threads) thread.join();
  collect();
  CHECK_EQ(collected + refused.load(), kThreads * kEach);
  CHECK_EQ(taken(*pool), 0);
}

}  // namespace
}  // namespace paceline::nccl
