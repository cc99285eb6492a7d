// SPDX-License-Identifier: Apache-2.0
// GET /healthz: whether the process should go on. Thread-safe.
#pragma once

#include <chrono>

#include "common/base/clock.hpp"
#include "common/http/transport.hpp"
#include "common/kube/control/work_queue.hpp"

namespace paceline {

/// Longer than any reconciliation: calls time out after 30 s, and a large gang needs many.
inline constexpr std::chrono::minutes kHangs{15};

/// Answers 503 if a worker has had one key for longer than kHangs. A leader whose workers hang
/// renews its Lease all the same, so that only its restart lets another process act.
http::Response health(const kube::WorkQueue& queue, const Clock& clock);

}  // namespace paceline
