// SPDX-License-Identifier: Apache-2.0
// The agent's loop: probe and check when it is due, and a pulse every few seconds, which brings the
// next probe forward when a link or a device changed; beside it, on a thread of its own, the
// Uplink: publish and renew.
//
// Borrows everything it is given, which outlives it. `tick` and `run` belong to one thread;
// `healthy` and `ready` may be asked from any. The agent lives on without an API server, and is as
// quick to see a change while one hangs.
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
  std::chrono::milliseconds pulse_interval{3000};
  /// How long a link that was down must be up before it is reported up.
  std::chrono::milliseconds link_hold{30000};
  std::chrono::milliseconds retry_first{1000};
  /// What paceline-probe found with privilege before this agent started.
  PrivilegedScanFiles looked;
  /// Where every probe is put for readers of the node; borrowed. Null: nobody reads.
  Documents* documents = nullptr;
  /// What pods told of the checks that are looked at there, asked from the loop's thread; empty:
  /// nobody tells.
  std::function<std::vector<Finding>()> pods = {};
  /// What was measured of links is published at the next pulse; borrowed. Null: nothing is
  /// measured.
  LinkStore* links = nullptr;
  /// How far injection is, asked from the loop's thread; empty: this agent does not inject.
  std::function<Summary()> runtime = {};
  /// Told of every probe, from the loop's thread.
  std::function<void(const Hardware&)> probed = {};
};

class Agent {
 public:
  Agent(Root root, GpuLibrary& library, Publisher& publisher, Metrics& metrics, const Clock& clock,
        AgentOptions options);

  /// Does what is due of both, one after the other, and says when to come again.
  SteadyTime tick(const std::stop_token& stop = {});

  /// Both until stopped.
  void run(const std::stop_token& stop);

  /// False when the loop has been stuck for three probe intervals (a hanging device or library). An
  /// absent API server is no reason.
  bool healthy() const;
  /// True once the NodeFabric has been published.
  bool ready() const { return uplink_.ready(); }

 private:
  SteadyTime look();
  void probe();
  PrivilegedScan look_back();
  std::vector<Finding> told_with(std::vector<Finding> findings) const;
  void feel_pulse();
  std::optional<Summary> runtime() const;

  const Root root_;
  GpuLibrary& library_;
  Metrics& metrics_;
  const Clock& clock_;
  const AgentOptions options_;
  SteadyTime probe_at_;
  SteadyTime pulse_at_;
  std::vector<PciFunction> known_;
  std::string pulse_;
  std::optional<Summary> runtime_;  // as it was reported
  std::uint64_t link_changes_ = 0;  // likewise
  LinkDebounce settler_;
  CounterWindow counters_;
  std::string looked_complaint_;
  std::string looked_said_;
  Uplink uplink_;
  std::atomic<std::int64_t> alive_at_ns_;
};

}  // namespace paceline::agent
