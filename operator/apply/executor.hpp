// SPDX-License-Identifier: Apache-2.0
// Executor: runs a batch of independent API calls and returns when all are done. In the operator a
// pool of threads shared by all workers (the bound on concurrent writes; the pace is the server's),
// in the simulation the caller itself.
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

/// Thread-safe. The queue is bounded and blocks: a worker that plans faster than the server takes
/// is held back. Tasks must not call `run`.
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
