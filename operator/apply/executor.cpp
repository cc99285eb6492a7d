// SPDX-License-Identifier: Apache-2.0
#include "operator/apply/executor.hpp"

#include <exception>
#include <latch>
#include <mutex>

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
  std::mutex mutex;
  std::exception_ptr thrown;
  for (Task& task : tasks) {
    if (!queue_.push([&] {
          // On a thread of the pool it would end the process, and with it all jobs.
          try {
            task();
          } catch (...) {
            const std::lock_guard lock(mutex);
            if (!thrown) thrown = std::current_exception();
          }
          done.count_down();
        })) {
      done.count_down();  // shutting down: the next leader repeats what was not started
    }
  }
  done.wait();
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace paceline::apply
