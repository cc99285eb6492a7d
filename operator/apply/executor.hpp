// SPDX-License-Identifier: Apache-2.0
// Executor: runs a batch of independent API calls and returns when all are done. The operator uses
// a pool of threads that all workers share; it bounds concurrent writes, and the server sets the
// pace. The simulation runs the calls on the caller's thread. An exception of a task is thrown
// where the batch was given, whichever thread ran the task.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "common/base/queue.hpp"

namespace paceline::apply {

class Executor {
 public:
  using Task = std::function<void()>;
  virtual ~Executor() = default;
  virtual void run(std::vector<Task> tasks) = 0;
};

class InlineExecutor final : public Executor {
 public:
  void run(std::vector<Task> tasks) override {
    for (Task& task : tasks) task();
  }
};

/// Thread-safe. The queue is bounded and blocks, so that a worker cannot plan faster than the
/// server accepts. Tasks must not call `run`.
class PoolExecutor final : public Executor {
 public:
  explicit PoolExecutor(std::size_t threads);
  ~PoolExecutor() override;
  void run(std::vector<Task> tasks) override;

 private:
  BoundedQueue<Task> queue_;
  std::vector<std::jthread> threads_;
};

}  // namespace paceline::apply
