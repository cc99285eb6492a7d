// SPDX-License-Identifier: Apache-2.0
// Two tools for threads of one process. Progress is a count that one thread raises and another
// waits for; the wait ends when the communicator fails. Worker is a thread that runs one task after
// another.
//
// Ownership: members. Threads: one sets, one waits. Failure: wait returns false.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

#include "base/doorbell.hpp"
#include "comm/failure/failure_detector.hpp"

namespace paceline::comm {

class Progress {
 public:
  explicit Progress(FailureDetector& detector) : detector_(detector) {
    detector_.on_change([this] { bell_.ring(); });
  }
  void set(std::uint64_t count) {
    count_.store(count, std::memory_order_release);
    bell_.ring();
  }
  std::uint64_t get() const { return count_.load(std::memory_order_acquire); }
  // Blames `rank` if the count is not reached in time.
  bool wait(std::uint64_t count, std::uint32_t rank) {
    for (;;) {
      const std::uint32_t seen = bell_.count.load(std::memory_order_acquire);
      if (get() >= count) return !detector_.failed();
      if (!detector_.wait(bell_, seen, rank)) return false;
    }
  }

 private:
  FailureDetector& detector_;
  std::atomic<std::uint64_t> count_{0};
  base::Doorbell bell_{};
};

class Worker {
 public:
  Worker() = default;
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  void start(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
    task_ = std::move(task);
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !task_; });
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return task_ || stopping_; });
      if (!task_) return;
      lock.unlock();
      task_();
      lock.lock();
      task_ = nullptr;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> task_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace paceline::comm
