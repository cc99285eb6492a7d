// SPDX-License-Identifier: Apache-2.0
// The launcher's HTTP endpoint, and its answers. /healthz and /metrics need no credentials;
// /v1/summary, /v1/stacks and what `paceline trace` asks for need the job's token. So does
//
//   POST /v1/warnings   {nodes}: these may soon be lost, so the ranks save (Gang::warn). The caller
//                       repeats it while that is so.
//
// Endpoint borrows config, collector and clock. One thread: the event loop's. The answers are pure,
// apart from reading the collector and from requests for traces.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/telemetry/collector.hpp"
#include "launcher/config.hpp"
#include "launcher/rendezvous/gang.hpp"
#include "launcher/rendezvous/member.hpp"
#include "launcher/summary/documents.hpp"
#include "launcher/summary/http_server.hpp"
#include "launcher/trace/service.hpp"

namespace paceline::launcher {

/// Calls `open`, which listens on a port. In the network of its node it waits for a port that the
/// last pod there still has, for at most 30 s. Returns the last error. It blocks, so call it before
/// the loop runs.
Status open_port(const Config& config, const std::function<Status()>& open);

struct EndpointState {
  const Config* config = nullptr;
  const telemetry::Collector* collector = nullptr;
  traces::TraceService* traces = nullptr;  // null: this launcher takes no request for a trace
  // ranks whose metrics the node's agent does not serve; nullopt: all ranks
  std::optional<std::set<int>> ranks = {};
  bool whole_job = false;  // set on node rank 0: the state covers all replicas
  summary::JobState state;
  telemetry::JobSummary summary;
  const std::map<int, std::string>* stacks = nullptr;  // that were captured last, by rank
  std::function<void(const std::vector<std::string>& nodes)> warn = {};  // empty on other launchers
};

/// `gang` and `goodput` are null on other pods than node rank 0's: they know their own state only.
/// Reads the file in which rank 0 says what acts.
summary::JobState job_state(const Config& config, const rendezvous::Gang* gang,
                            const summary::GoodputMeter* goodput, const rendezvous::Member& member);

/// What needs no state, which costs a look at all ranks: /healthz, traces, refusals. nullopt: the
/// rest.
std::optional<summary::HttpAnswer> answer_without_state(const Config& config,
                                                        traces::TraceService* traces,
                                                        const summary::HttpRequest& request);
summary::HttpAnswer answer_request(const EndpointState& state, const summary::HttpRequest& request);

class Endpoint {
 public:
  Endpoint(const Config& config, const telemetry::Collector& collector, const Clock& clock)
      : config_(config), collector_(collector), clock_(clock) {}

  /// Serves where the config says, if it does. `state` is asked at each request that
  /// needs it. Failure: the
  /// address cannot be bound, or the folder of traces cannot be made.
  Status open(boost::asio::io_context& io, std::function<EndpointState()> state);
  void close();
  /// Asks the ranks for a kernel window now.
  Status ask_for_window() { return traces_ ? traces_->ask_for_window() : Status{}; }

 private:
  summary::HttpAnswer answer(const std::function<EndpointState()>& ask_state,
                             const summary::HttpRequest& request);

  const Config& config_;
  const telemetry::Collector& collector_;
  const Clock& clock_;
  summary::StepHistory history_;
  std::unique_ptr<traces::TraceService> traces_;
  std::optional<summary::HttpServer> server_;
};

}  // namespace paceline::launcher
