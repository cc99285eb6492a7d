// SPDX-License-Identifier: Apache-2.0
// ApiCalls: how many requests the API server answered, by verb, resource and status. Thread-safe.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "common/kube/client/client.hpp"

namespace paceline {

class ApiCalls {
 public:
  struct Key {
    std::string verb;
    std::string resource;  // empty: a path that is no resource's
    int code = 0;          // 0: no answer came
    auto operator<=>(const Key&) const = default;
  };
  using Counts = std::map<Key, std::uint64_t>;

  void count(const kube::CallName& call, int code) {
    const std::lock_guard lock(mutex_);
    ++counts_[{std::string(call.verb), std::string(call.resource), code}];
  }
  Counts counts() const {
    const std::lock_guard lock(mutex_);
    return counts_;
  }

 private:
  mutable std::mutex mutex_;
  Counts counts_;
};

}  // namespace paceline
