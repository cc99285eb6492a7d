// SPDX-License-Identifier: Apache-2.0
// Leader election on a Lease. Another holder's expiry is judged by local observation (how long its
// record has not changed by our steady clock), never by comparing wall clocks; our own by the time
// of the last renewal we *began*.
//
// Ownership: refers to its Api, which should have a connection of its own (make_client, with a
// time-out below half of `renew_deadline` and no throttle_retries), so that a full pool cannot
// starve renewals, and to the Clock. `run` belongs to one thread: it calls `on_start` once elected
// and returns when leadership is lost or `stop` is requested (then the Lease is released). After
// `run` returned true the process must stop acting: leadership was held and is over.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
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

  /// Returns whether leadership was held at all. `on_start` must not block.
  bool run(const std::function<void()>& on_start, const std::stop_token& stop);
  bool leading() const { return leading_; }

  /// One try to take or renew, for tests and the simulation: true while leader after it.
  bool step(const std::stop_token& stop = {});
  /// Gives the lease up so that the next holder need not wait.
  void release();

 private:
  Status try_acquire_or_renew(const std::stop_token& stop);

  Api& api_;
  const Clock& clock_;
  const LeaderElectionOptions options_;
  std::atomic<bool> leading_{false};  // asked by /readyz from another thread
  std::string observed_;              // the record as last read
  SteadyTime observed_at_{};          // when it last changed, by our clock
  SteadyTime renewed_at_{};           // when our last successful renewal began
};

}  // namespace paceline::kube
