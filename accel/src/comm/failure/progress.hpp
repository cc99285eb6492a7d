// SPDX-License-Identifier: Apache-2.0
// A count that one thread raises and another waits for. Rings use it for bytes and chunks. The wait
// ends when the communicator fails.
//
// Ownership: a member; the failure detector outlives it. Threads: one sets, one waits. Failure:
// wait returns false.
#pragma once

#include <atomic>
#include <cstdint>

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

}  // namespace paceline::comm
