// SPDX-License-Identifier: Apache-2.0
// Runs collectives in the background: one after another, in the order given, on a thread of its
// own. all_reduce with async_op=True uses it.
//
// Ownership: of the thread, which the first task starts. Tasks and the memory that they use belong
// to the caller until wait() has returned. Threads: any. Blocking: `add` blocks while kMost tasks
// are under way. Failure: once a task fails, all later ones return its code.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace paceline::comm {

class Queue {
 public:
  static constexpr std::size_t kMost = 4096;

  Queue() = default;
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  ~Queue();  // waits for all tasks

  // Returns a number to wait for: 1, 2, …
  std::uint64_t add(std::function<int()> task);
  // Sets the code of this task, or of an earlier one that failed. False for an unknown number.
  bool wait(std::uint64_t number, int& code);
  // Whether the task has ended, with or without success. False for an unknown number.
  bool is_done(std::uint64_t number) const;
  void drain();
  bool idle() const;

 private:
  void run();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<int()>> tasks_;  // the first is running
  std::uint64_t given_ = 0;
  std::uint64_t done_ = 0;
  std::uint64_t failed_ = 0;  // the first task that failed; 0: none
  int code_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace paceline::comm
