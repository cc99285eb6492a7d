// SPDX-License-Identifier: Apache-2.0
// FailPointApi: an Api that ends the process right before or right after its n-th write. Tests use
// it to prove that the operator recovers from every intermediate state.
//
// PACELINE_FAILPOINT="3:before" or "3:after" arms it. Writes count from 1; dry runs do not count.
// PACELINE_FAILPOINT_COUNT_FILE receives the number of writes so far. The process ends with
// _exit(87), so nothing is flushed or released. Thread-safe if the Api below it is.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "common/kube/api/api.hpp"

namespace paceline::kube {

struct FailPoint {
  std::uint64_t at = 0;  // 0: never
  bool after = false;
  std::string count_file;
};
inline constexpr int kFailPointExit = 87;

/// Reads the two variables. kInvalid names the variable and what to write.
Result<FailPoint> fail_point_from_environment();

/// Returns `api` itself if the fail point neither fires nor counts.
std::shared_ptr<Api> with_fail_point(std::shared_ptr<Api> api, FailPoint fail_point);

}  // namespace paceline::kube
