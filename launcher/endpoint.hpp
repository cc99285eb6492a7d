// SPDX-License-Identifier: Apache-2.0
// What the launcher's HTTP endpoint answers: /healthz and /metrics to everybody, /v1/summary to who
// shows the job's token. Pure but for the collector.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "common/telemetry/collector.hpp"
#include "launcher/config.hpp"
#include "launcher/summary/documents.hpp"
#include "launcher/summary/http_server.hpp"

namespace paceline::launcher {

struct EndpointState {
  const Config* config = nullptr;
  const telemetry::Collector* collector = nullptr;
  // whose metrics are not served by the node's agent; absent: all
  std::optional<std::set<int>> ranks = {};
  bool whole_job = false;  // node rank 0: the state covers all replicas
  summary::JobState state;
  telemetry::JobSummary summary;
};

summary::HttpAnswer answer_request(const EndpointState& state, const std::string& path,
                                   const std::string& authorization);

}  // namespace paceline::launcher
