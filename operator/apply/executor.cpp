// SPDX-License-Identifier: Apache-2.0
#include "operator/apply/executor.hpp"

#include <latch>

namespace paceline::apply {

PoolExecutor::PoolExecutor(std::size_t threads) : queue_(4 * threads, Overflow::kBlock) {
  for (std::size_t i = 0; i < threads; ++i) {
    threads_.emplace_back([this] {
      while (auto task = queue_.pop()) (*task)();
    });
  }
}

PoolExecutor::~PoolExecutor() { queue_.close(); }

void PoolExecutor::run(std::vector<Task> tasks) {
  if (tasks.size() == 1) {
    tasks.front()();
    return;
  }
  std::latch done(static_cast<std::ptrdiff_t>(tasks.size()));
  for (Task& task : tasks) {
    if (!queue_.push([&task, &done] {
          task();
          done.count_down();
        })) {
      done.count_down();  // shutting down: the next leader repeats what was not started
    }
  }
  done.wait();
}

}  // namespace paceline::apply
