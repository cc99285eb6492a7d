// SPDX-License-Identifier: Apache-2.0
// Leader election on a Lease. Wall clocks of two processes are never compared. Another holder has
// expired if its record has not changed for the lease's duration, by our steady clock. Our own
// lease counts from the moment we *began* the last renewal.
//
// Ownership: Api and Clock must outlive it. The Api should have a connection of its own, a time-out
// below half of `renew_deadline` and no throttle_retries, so that a full pool cannot delay
// renewals. `run` belongs to one thread. It calls `on_start` once elected, and returns when
// leadership is lost or `stop` is requested (then it releases the Lease). After `run` returned true
// the process must stop acting: it was the leader and is no longer.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <stop_token>
#include <string>

#include "common/base/clock.hpp"
#include "common/kube/api/api.hpp"

namespace paceline::kube {

struct LeaderElectionOptions {
  std::string ns{};
  std::string name{};
  std::string identity{};  // unique per process
  std::chrono::milliseconds lease_duration{15000};
  std::chrono::milliseconds renew_deadline{10000};
  std::chrono::milliseconds retry_period{2000};
};

class LeaderElection {
 public:
  LeaderElection(Api& api, const Clock& clock, LeaderElectionOptions options);

  /// Returns true if this process was ever the leader. `on_start` must not block.
  bool run(const std::function<void()>& on_start, const std::stop_token& stop);
  bool leading() const { return leading_; }
  /// The Lease's holder as last read or written; empty: not known. Any thread may ask.
  std::string holder() const;

  /// One attempt to take or renew the Lease, for tests and the simulation. True if this process is
  /// the leader afterwards.
  bool step(const std::stop_token& stop = {});
  /// Releases the Lease, so that the next holder need not wait.
  void release();

 private:
  Status try_acquire_or_renew(const std::stop_token& stop);
  void note_holder(std::string holder);

  Api& api_;
  const Clock& clock_;
  const LeaderElectionOptions options_;
  std::atomic<bool> leading_{false};  // read by /readyz on another thread
  mutable std::mutex holder_mutex_;
  std::string holder_;
  std::string observed_;      // the record as last read
  SteadyTime observed_at_{};  // when it last changed, by our clock
  SteadyTime renewed_at_{};   // when our last successful renewal began
};

}  // namespace paceline::kube
