// SPDX-License-Identifier: Apache-2.0
// Waiting: how many jobs wait for a placement, by queue and reason. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "operator/observe/views.hpp"

namespace paceline {

/// People choose the names of queues: those with the most waiting jobs are named, and all others
/// are counted as `other`. Reasons are the operator's own.
inline constexpr std::size_t kNamedQueues = 50;

using Waiting = std::map<std::pair<std::string, std::string>, std::int64_t>;  // (queue, reason)

Waiting waiting_jobs(const std::vector<std::shared_ptr<const observe::JobView>>& jobs);

}  // namespace paceline
