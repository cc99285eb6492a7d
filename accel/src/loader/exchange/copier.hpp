// SPDX-License-Identifier: Apache-2.0
// One thread that copies memory in the order in which copies were begun.
//
// Ownership: both memories belong to the caller. They must stay until the copy has been waited for,
// or until the copier is destroyed. Threads: any thread may call. Forks: a child has no copying
// thread, so it must neither call nor destroy a copier. Failure: begin throws bad_alloc. The
// constructor throws system_error if the system refuses a thread.
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
  // Finishes all copies that were begun.
  ~Copier();
  Copier(const Copier&) = delete;
  Copier& operator=(const Copier&) = delete;

  // Returns the number of the copy.
  std::uint64_t begin(void* target, const void* source, std::size_t size);
  // Returns true if this copy and all earlier ones are done, false after the timeout.
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
