// SPDX-License-Identifier: Apache-2.0
// Uplink: publishes reports and renews the Lease in a thread of its own, apart from the probe's
// loop. So an API server that hangs does not delay the probes or the readers of this node.
//
// Borrows its arguments, which must outlive it. `put` and `ready` may be called from any thread;
// `tick` and `run` belong to one. A new report replaces one that is not yet published. A failure is
// logged once per message, counted, and retried with a growing pause.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "agent/report/metrics.hpp"
#include "agent/report/publisher.hpp"
#include "common/base/clock.hpp"

namespace paceline::agent {

struct UplinkOptions {
  std::chrono::milliseconds renew_interval{10000};
  std::chrono::milliseconds retry_first{1000};
  std::chrono::milliseconds retry_longest{30000};
};

/// The result of one probe.
struct Report {
  Hardware hardware;
  std::vector<Finding> findings;
  std::optional<Summary> runtime;
};

class Uplink {
 public:
  Uplink(Publisher& publisher, Metrics& metrics, const Clock& clock, UplinkOptions options);

  void put(Report report);
  /// Renews and publishes what is due, and returns when to call again. Blocks as long as the API's
  /// calls do.
  SteadyTime tick(const std::stop_token& stop = {});
  void run(const std::stop_token& stop);
  /// True once a NodeFabric has been published.
  bool ready() const { return ready_; }

 private:
  void renew(const std::stop_token& stop);
  void publish(const std::stop_token& stop);

  Publisher& publisher_;
  Metrics& metrics_;
  const Clock& clock_;
  const UplinkOptions options_;
  SteadyTime renew_at_;
  SteadyTime publish_at_;
  std::chrono::milliseconds pause_;
  std::string publish_complaint_;
  std::string renew_complaint_;
  std::atomic<bool> ready_ = false;
  std::mutex mutex_;  // newest_
  std::condition_variable_any news_;
  std::optional<Report> newest_;  // the report that is not published yet
};

}  // namespace paceline::agent
