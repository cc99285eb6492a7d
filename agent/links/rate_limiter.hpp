// SPDX-License-Identifier: Apache-2.0
// RateLimiter: one measurement at a time per node, whether it measures or answers, and each peer
// again only after a pause. LinkService has one.
//
// RateLimiter must outlive its Permits. Thread-safe; a Permit belongs to one thread at a time. A
// refusal says when to retry.
#pragma once

#include <chrono>
#include <cstddef>
#include <expected>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "common/base/clock.hpp"

namespace paceline::agent {

struct RateLimits {
  std::chrono::seconds after_success{600};
  /// After a measurement that failed midway.
  std::chrono::seconds after_failure{60};
  /// After a measurement that never began: nothing was sent.
  std::chrono::seconds after_nothing{5};
  std::size_t most_peers = 256;  // remembered peers; above that, a new peer is refused
};

enum class PermitEnd { kSuccess, kFailure, kNothing };

class RateLimiter;

/// Held during a measurement. It counts as a failure unless ends_as says otherwise.
class Permit {
 public:
  Permit(RateLimiter& limiter, std::string peer) : limiter_(&limiter), peer_(std::move(peer)) {}
  ~Permit();
  Permit(const Permit&) = delete;
  Permit& operator=(const Permit&) = delete;
  void ends_as(PermitEnd end) { end_ = end; }

 private:
  RateLimiter* limiter_;
  std::string peer_;
  PermitEnd end_ = PermitEnd::kFailure;
};

struct RetryAfter {
  std::chrono::seconds in{};
  std::string why;
};

class RateLimiter {
 public:
  explicit RateLimiter(const Clock& clock, RateLimits limits = {})
      : clock_(clock), limits_(limits) {}

  std::expected<std::unique_ptr<Permit>, RetryAfter> begin(const std::string& peer);

 private:
  friend class Permit;
  void end(const std::string& peer, PermitEnd how);

  const Clock& clock_;
  const RateLimits limits_;
  std::mutex mutex_;
  bool busy_ = false;
  std::map<std::string, SteadyTime> next_;
};

}  // namespace paceline::agent
