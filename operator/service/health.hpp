// SPDX-License-Identifier: Apache-2.0
// GET /healthz: whether the process should go on. Thread-safe.
#pragma once

#include <chrono>

#include "common/base/clock.hpp"
#include "common/http/transport.hpp"
#include "common/kube/control/work_queue.hpp"

namespace paceline {

/// Longer than a reconciliation takes: a call gives up after 30 s, and a gang of thousands of pods
/// on a slow API server needs many.
inline constexpr std::chrono::minutes kHangs{60};

/// Answers 503 if a worker has had one key for longer than kHangs. A leader whose workers hang
/// renews its Lease all the same, so that only its restart lets another process act.
http::Response health(const kube::WorkQueue& queue, const Clock& clock);

}  // namespace paceline
