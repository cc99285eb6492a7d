// SPDX-License-Identifier: Apache-2.0
// TokenBucket: allows a rate per second and a burst. Slots and pods are limited by it. A value, not
// thread-safe; the time is a parameter. Nothing fails.
#pragma once

#include <algorithm>
#include <chrono>

#include "common/base/clock.hpp"

namespace paceline::agent {

class TokenBucket {
 public:
  TokenBucket(double per_second, double burst, SteadyTime now)
      : per_second_(per_second), burst_(burst), tokens_(burst), at_(now) {}

  /// The tokens that may be taken now.
  double level(SteadyTime now) {
    tokens_ =
        std::min(burst_, tokens_ + per_second_ * std::chrono::duration<double>(now - at_).count());
    at_ = now;
    return tokens_;
  }
  /// Sets the rate; the burst becomes one second's worth.
  void allow(double per_second, SteadyTime now) {
    level(now);
    per_second_ = burst_ = per_second;
  }
  bool take(SteadyTime now, double tokens = 1) {
    if (level(now) < tokens) return false;
    tokens_ -= tokens;
    return true;
  }

 private:
  double per_second_;
  double burst_;
  double tokens_;
  SteadyTime at_;
};

}  // namespace paceline::agent
