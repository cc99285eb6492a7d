// SPDX-License-Identifier: Apache-2.0
// Agent: the loop of paceline-agent. It probes and checks at every probe interval. Every few
// seconds it compares a fingerprint of the devices, and probes at once if it changed. On a thread
// of its own, Uplink publishes the results and renews the Lease. main.cpp wires it.
//
// Borrows its arguments, which must outlive it. `tick` and `run` belong to one thread; `healthy`
// and `ready` may be called from any. Without an API server, or while it hangs, the agent goes on
// and notices changes as quickly.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "agent/checks/counter_window.hpp"
#include "agent/checks/privileged_scan.hpp"
#include "agent/checks/summary.hpp"
#include "agent/links/link_store.hpp"
#include "agent/probe/gpu/gpu_library.hpp"
#include "agent/probe/sysfs/root.hpp"
#include "agent/report/link_debounce.hpp"
#include "agent/report/metrics.hpp"
#include "agent/report/uplink.hpp"
#include "agent/serve/documents.hpp"
#include "common/base/clock.hpp"

namespace paceline::agent {

struct AgentOptions {
  std::chrono::milliseconds probe_interval{30000};
  std::chrono::milliseconds renew_interval{10000};
  std::chrono::milliseconds poll_interval{3000};
  /// How long a link must be up after it was down, before it is reported as up.
  std::chrono::milliseconds link_hold{30000};
  std::chrono::milliseconds retry_first{1000};
  /// Results of the privileged scan that ran before this agent started.
  PrivilegedScanFiles scan;
  /// Receives the documents of every probe for the node's server; borrowed. Null: they are not
  /// served.
  Documents* documents = nullptr;
  /// Returns the findings that pods reported; called in the loop's thread. Empty: pods report none.
  std::function<std::vector<Finding>()> pods = {};
  /// Measured links, published at the next fingerprint check; borrowed. Null: links are not
  /// measured.
  LinkStore* links = nullptr;
  /// Returns the state of the injection; called in the loop's thread. Empty: this agent does not
  /// inject.
  std::function<Summary()> runtime = {};
  /// Called with the result of every probe, in the loop's thread.
  std::function<void(const Hardware&)> probed = {};
};

class Agent {
 public:
  Agent(Root root, GpuLibrary& library, Publisher& publisher, Metrics& metrics, const Clock& clock,
        AgentOptions options);

  /// Does what is due of the loop and of Uplink, and returns when to call again.
  SteadyTime tick(const std::stop_token& stop = {});

  /// Runs the loop, and Uplink in a second thread, until stopped.
  void run(const std::stop_token& stop);

  /// False if the loop has been stuck for three probe intervals (in a device or a library). A
  /// missing API server does not count.
  bool healthy() const;
  /// True once the NodeFabric has been published.
  bool ready() const { return uplink_.ready(); }

 private:
  SteadyTime look();
  void probe();
  PrivilegedScan read_scan();
  std::vector<Finding> told_with(std::vector<Finding> findings) const;
  void poll_for_changes();
  std::optional<Summary> runtime() const;

  const Root root_;
  GpuLibrary& library_;
  Metrics& metrics_;
  const Clock& clock_;
  const AgentOptions options_;
  SteadyTime probe_at_;
  SteadyTime poll_at_;
  std::vector<PciFunction> known_;
  std::string fingerprint_;
  std::optional<Summary> runtime_;  // as last reported
  std::uint64_t link_changes_ = 0;  // as last reported
  LinkDebounce settler_;
  CounterWindow counters_;
  std::string scan_complaint_;
  std::string scan_times_;
  Uplink uplink_;
  std::atomic<std::int64_t> alive_at_ns_;
};

}  // namespace paceline::agent
