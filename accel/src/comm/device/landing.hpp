// SPDX-License-Identifier: Apache-2.0
// Where a device's streams tell that they have come to a place: a function of the host that the
// driver calls there (cuLaunchHostFunc), which counts it. So nobody asks a device or waits for it,
// and what has not landed can be waited for with a limit, as a stream cannot.
//
// Ownership: the object may have to outlive its owner, who then leaves it to the end of the
// process. Threads: any. Failure: the driver's status.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>

#include "../../cuda/driver.hpp"
#include "../watch.hpp"
#include "doorbell.hpp"

namespace paceline::comm::device {

class Landing {
 public:
  // What a place means. Kept by the caller until it has landed.
  struct Mark {
    Landing* landing = nullptr;
    std::uint32_t kind = 0;
    std::uint32_t number = 0;  // of a chunk in its call
    std::uint32_t count = 0;   // chunks of all calls, with this one
  };

  // `landed` is called by a thread of the driver: it may not call the driver, and is short.
  explicit Landing(std::function<void(const Mark&)> landed) : landed_(std::move(landed)) {}
  Landing(const Landing&) = delete;
  Landing& operator=(const Landing&) = delete;

  int expect(const cuda::Driver& cuda, cuda::Stream stream, Mark& mark) {
    mark.landing = this;
    under_way_.fetch_add(1, std::memory_order_relaxed);
    const int status = cuda.host_call(stream, &Landing::call, &mark);
    if (status != cuda::kSuccess) under_way_.fetch_sub(1, std::memory_order_relaxed);
    return status;
  }

  // Whether everything has landed, at the latest at `deadline`.
  bool settle(Clock::time_point deadline) {
    for (;;) {
      const std::uint32_t seen = bell_.count.load(std::memory_order_acquire);
      if (under_way_.load(std::memory_order_acquire) == 0) {
        // held by the last one until it no longer uses this object
        const std::lock_guard lock(mutex_);
        return true;
      }
      const auto left =
          std::chrono::duration_cast<std::chrono::nanoseconds>(deadline - Clock::now()).count();
      if (left <= 0) return false;
      bell_.wait(seen, left);
    }
  }

  // What lands from now on tells nobody.
  void forget() {
    const std::lock_guard lock(mutex_);
    landed_ = nullptr;
  }

 private:
  static void call(void* data) {
    const Mark mark = *static_cast<const Mark*>(data);
    Landing& it = *mark.landing;
    const std::lock_guard lock(it.mutex_);
    if (it.landed_) it.landed_(mark);
    it.under_way_.fetch_sub(1, std::memory_order_release);
    it.bell_.ring();
  }

  std::mutex mutex_;
  std::function<void(const Mark&)> landed_;
  std::atomic<std::uint32_t> under_way_{0};
  loader::Doorbell bell_{};
};

}  // namespace paceline::comm::device
