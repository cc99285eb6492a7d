// SPDX-License-Identifier: Apache-2.0
// The answers of the launcher's HTTP endpoint. /healthz and /metrics need no credentials;
// /v1/summary needs the job's token. Launcher calls answer_request for each request.
//
// Pure, apart from reading the collector.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "common/telemetry/collector.hpp"
#include "launcher/config.hpp"
#include "launcher/rendezvous/gang.hpp"
#include "launcher/rendezvous/member.hpp"
#include "launcher/summary/documents.hpp"
#include "launcher/summary/http_server.hpp"

namespace paceline::launcher {

struct EndpointState {
  const Config* config = nullptr;
  const telemetry::Collector* collector = nullptr;
  // ranks whose metrics the node's agent does not serve; nullopt: all ranks
  std::optional<std::set<int>> ranks = {};
  bool whole_job = false;  // set on node rank 0: the state covers all replicas
  summary::JobState state;
  telemetry::JobSummary summary;
};

/// `gang` is null on other pods than node rank 0's: they know their own state only. Reads the file
/// in which rank 0 says what acts.
summary::JobState job_state(const Config& config, const rendezvous::Gang* gang,
                            const rendezvous::Member& member);

summary::HttpAnswer answer_request(const EndpointState& state, const summary::HttpRequest& request);

}  // namespace paceline::launcher
