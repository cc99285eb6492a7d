// SPDX-License-Identifier: Apache-2.0
// JobWatch: keeps the account of the job's time, gives the diagnosis what rank 0's launcher knows
// of the job, and does what follows. That is log lines, the capture of stacks, and the restart of a
// gang that hangs, if the job asks for it. Launcher calls it on node rank 0.
//
// Borrows server, clock and log. One thread: the event loop's. Nothing fails.
#pragma once

#include <optional>
#include <string>

#include "common/base/clock.hpp"
#include "launcher/config.hpp"
#include "launcher/diagnosis/diagnosis.hpp"
#include "launcher/log.hpp"
#include "launcher/rendezvous/server.hpp"
#include "launcher/summary/goodput.hpp"
#include "launcher/watch/failure_news.hpp"

namespace paceline::launcher {

class JobWatch {
 public:
  JobWatch(const Config& config, rendezvous::Server& server, const Clock& clock, Log& log);

  /// Call a few times a second.
  void tick();
  /// Logs what to do about the failure that ended an attempt, once. Call it before the launcher
  /// ends, too.
  void tell_failure();
  /// With that of the failure that ended the last attempt, until ranks train again.
  diagnosis::Findings findings() const;
  /// What the job's time was used for, until now.
  telemetry::Goodput goodput() const { return meter_.at_present(server_.gang()); }
  const summary::GoodputMeter& meter() const { return meter_; }

 private:
  diagnosis::Facts facts() const;
  diagnosis::Finding finding_of(const rendezvous::Culprit& culprit) const;
  std::optional<diagnosis::Finding> failure() const;
  void tell(const diagnosis::News& news);

  const Config& config_;
  rendezvous::Server& server_;
  const Clock& clock_;
  Log& log_;
  diagnosis::Diagnosis diagnosis_;
  summary::GoodputMeter meter_;
  SteadyTime next_{};
  FailureNews failures_;
};

}  // namespace paceline::launcher
