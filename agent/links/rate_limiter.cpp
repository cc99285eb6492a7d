// SPDX-License-Identifier: Apache-2.0
#include "agent/links/rate_limiter.hpp"

#include <algorithm>
#include <utility>

namespace paceline::agent {

Permit::~Permit() { limiter_->end(peer_, end_); }

std::expected<std::unique_ptr<Permit>, RetryAfter> RateLimiter::begin(const std::string& peer) {
  const std::lock_guard lock(mutex_);
  const SteadyTime now = clock_.steady();
  std::erase_if(next_, [&](const auto& entry) { return entry.second <= now; });
  const auto left = [&](SteadyTime until) {
    return std::chrono::ceil<std::chrono::seconds>(until - now);
  };
  const auto again = [](std::chrono::seconds in, std::string why) {
    return std::unexpected(
        RetryAfter{in, std::move(why) + "; come again in " + std::to_string(in.count()) + " s"});
  };
  if (const auto known = next_.find(peer); known != next_.end())
    return again(left(known->second), "this pair of nodes was measured or tried a short while ago");
  if (busy_) return again(limits_.after_nothing, "another measurement is under way at this node");
  if (next_.size() >= limits_.most_peers) {
    const auto first =
        std::ranges::min_element(next_, {}, [](const auto& entry) { return entry.second; });
    return again(left(first->second), "too many peers were measured a short while ago");
  }
  busy_ = true;
  return std::make_unique<Permit>(*this, peer);
}

void RateLimiter::end(const std::string& peer, PermitEnd how) {
  const std::lock_guard lock(mutex_);
  busy_ = false;
  const auto wait = how == PermitEnd::kSuccess   ? limits_.after_success
                    : how == PermitEnd::kFailure ? limits_.after_failure
                                                 : limits_.after_nothing;
  next_[peer] = clock_.steady() + wait;
}

}  // namespace paceline::agent
