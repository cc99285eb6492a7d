// SPDX-License-Identifier: Apache-2.0
#include "operator/service/health.hpp"

#include <string>

namespace paceline {

http::Response health(const kube::WorkQueue& queue, const Clock& clock) {
  const auto longest = queue.longest_in_hand();
  if (!longest || clock.steady() - longest->since <= kHangs) return {200, {}, "ok\n"};
  const auto minutes =
      std::chrono::duration_cast<std::chrono::minutes>(clock.steady() - longest->since);
  return {503,
          {},
          "a worker has been at " + longest->key + " for " + std::to_string(minutes.count()) +
              " minutes\n"};
}

}  // namespace paceline
