// SPDX-License-Identifier: Apache-2.0
// What became of API calls: Done, and Collector, which gathers it from calls that run in parallel.
// A Collector is thread-safe until `take`.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "common/base/error.hpp"
#include "operator/plan/placement/gangs.hpp"

namespace paceline::apply {

struct Done {
  std::optional<plan::Waiting> refusal;
  std::optional<Error> error;      // try again later
  std::uint64_t pods_version = 0;  // newest version of a written pod
  std::size_t created = 0;
  std::size_t ungated = 0;
  std::size_t deleted = 0;
};

/// The server will say the same again.
inline bool final_refusal(const Error& error) {
  return error.code == Code::kForbidden || error.code == Code::kInvalid ||
         error.code == Code::kNotFound;
}

class Collector {
 public:
  void failed(const Error& error, const char* reason) {
    const std::lock_guard lock(mutex_);
    if (final_refusal(error)) {
      if (!done_.refusal) done_.refusal = plan::Waiting{reason, error.message};
    } else if (!done_.error) {
      done_.error = error;
    }
  }
  void failed(const Done& call) {
    const std::lock_guard lock(mutex_);
    if (!done_.refusal) done_.refusal = call.refusal;
    if (!done_.error) done_.error = call.error;
  }
  void refused(std::string reason, std::string message) {
    const std::lock_guard lock(mutex_);
    if (!done_.refusal) done_.refusal = plan::Waiting{std::move(reason), std::move(message)};
  }
  void wrote(std::uint64_t version, std::size_t Done::* counter) {
    const std::lock_guard lock(mutex_);
    done_.pods_version = std::max(done_.pods_version, version);
    ++(done_.*counter);
  }
  bool refusal() {
    const std::lock_guard lock(mutex_);
    return done_.refusal.has_value();
  }
  Done take() { return std::move(done_); }

 private:
  std::mutex mutex_;
  Done done_;
};

}  // namespace paceline::apply
