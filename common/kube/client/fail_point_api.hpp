// SPDX-License-Identifier: Apache-2.0
// FailPointApi: an Api that ends the process right before or right after its n-th write, to prove
// that every intermediate state is recovered from.
//
// PACELINE_FAILPOINT="3:before" or "3:after" arms it (writes count from 1; dry runs do not count);
// PACELINE_FAILPOINT_COUNT_FILE receives the number of writes so far. Ends with _exit(87), so
// nothing is flushed or released. Thread-safe as the Api below it.
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

/// From the two variables. kInvalid names the variable and what to write.
Result<FailPoint> fail_point_from_environment();

/// `api` itself when the fail point neither fires nor counts.
std::shared_ptr<Api> with_fail_point(std::shared_ptr<Api> api, FailPoint fail_point);

}  // namespace paceline::kube
