// SPDX-License-Identifier: Apache-2.0
// JobSpans: exports the spans of the job's life, if the environment names a collector. The launcher
// of node rank 0 follows the gang for it; every launcher tells its ranks their attempt's span.
//
// Borrows config, clock and log. One thread: the event loop's. Nothing fails.
#pragma once

#include <optional>

#include "common/base/clock.hpp"
#include "launcher/config.hpp"
#include "launcher/frameworks/environment.hpp"
#include "launcher/log.hpp"
#include "launcher/process/rank_set.hpp"
#include "launcher/rendezvous/gang.hpp"
#include "launcher/rendezvous/member.hpp"
#include "launcher/spans/exporter.hpp"
#include "launcher/spans/life.hpp"

namespace paceline::spans {

class JobSpans {
 public:
  JobSpans(const frameworks::Environment& environment, const launcher::Config& config,
           const Clock& clock, launcher::Log& log);

  /// Sets TRACEPARENT of the ranks of this attempt.
  void tell(int attempt, std::vector<process::RankSpec>& ranks) const;
  /// Call a few times a second, on node rank 0.
  void tick(const rendezvous::Gang& gang);
  /// The launcher of node rank 0 ends. Waits for the last spans, a short time.
  void end(const rendezvous::Gang& gang, const rendezvous::Outcome& outcome);

 private:
  const launcher::Config& config_;
  const Clock& clock_;
  std::optional<Target> target_;
  std::optional<JobLife> life_;
  std::optional<Exporter> exporter_;
  SteadyTime next_{};
};

}  // namespace paceline::spans
