// SPDX-License-Identifier: Apache-2.0
// GET /debug/jobs/NAMESPACE/NAME: why a job does or does not run, as JSON. Everything comes from
// the controller's memory and caches, and nothing calls the API server. Thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "common/base/clock.hpp"
#include "common/http/transport.hpp"
#include "common/kube/control/work_queue.hpp"
#include "operator/apply/controller.hpp"
#include "operator/apply/facts/job_facts.hpp"

namespace paceline {

inline constexpr std::string_view kDebugJobs = "/debug/jobs/";

struct Leadership {
  bool leading = false;
  std::string leader;  // its identity; empty: not known
};

/// Answers 404 if there is no such job, and 503 if another process leads: only the leader knows.
http::Response debug_job(std::string_view target, const apply::Controller& controller,
                         const kube::WorkQueue& queue, const Clock& clock,
                         const Leadership& leadership);

/// The job's part of the answer. `next`: when the job is looked at next; nullopt: after the next
/// event. Pure.
nlohmann::ordered_json job_page(const apply::JobFacts& facts, std::optional<WallTime> next,
                                WallTime now);

}  // namespace paceline
