// SPDX-License-Identifier: Apache-2.0
// One thread that copies memory, in the order it was told to.
//
// Ownership: both memories are the caller's until the copy has been waited for, or this has ended.
// Threads: any may call. Forks: a child has no thread; it must neither call nor end this. Failure:
// begin throws bad_alloc; the constructor system_error where no thread can be had.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>

namespace paceline::loader {

class Copier {
 public:
  Copier();
  // Finishes what was begun.
  ~Copier();
  Copier(const Copier&) = delete;
  Copier& operator=(const Copier&) = delete;

  // Answers the copy's number.
  std::uint64_t begin(void* target, const void* source, std::size_t size);
  // Whether it and all before it are done.
  bool wait(std::uint64_t copy, std::chrono::milliseconds timeout);

 private:
  struct Copy {
    void* target = nullptr;
    const void* source = nullptr;
    std::size_t size = 0;
  };
  void work();

  std::mutex mutex_;
  std::condition_variable begun_;
  std::condition_variable ended_;
  std::deque<Copy> copies_;
  std::uint64_t last_ = 0;
  std::uint64_t done_ = 0;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace paceline::loader
