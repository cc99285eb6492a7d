// SPDX-License-Identifier: Apache-2.0
// JobLife: turns what the gang does into spans. The job is the root; its parts follow each other:
// queued, pod start, rendezvous, attempt, restart, attempt, and so on. Within an attempt there are
// the way to the first step and the checkpoints, as far as heartbeats tell: within two seconds.
//
// No clock, no I/O: the time comes in, finished spans go out. Not thread-safe. Nothing fails.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.hpp"
#include "launcher/rendezvous/gang.hpp"
#include "launcher/spans/span.hpp"

namespace paceline::spans {

struct JobFacts {
  std::string name;
  std::string uid;
  std::string parent{};               // the span that the job belongs to; empty: none
  std::optional<WallTime> created{};  // nullopt: a local run
  std::optional<WallTime> placed{};   // nullopt: this is not its first pod, or a local run
  int attempt = 0;                    // the first of this launcher
};

class JobLife {
 public:
  JobLife(JobFacts job, WallTime now);

  /// Call it a few times a second. Returns what has ended since the last call.
  std::vector<Span> follow(const rendezvous::Gang& gang, WallTime now);
  /// Looks at the ranks' heartbeats, too. Call it about once a second.
  std::vector<Span> look_at_ranks(const rendezvous::Gang& gang, WallTime now);
  /// Ends what has not ended: the job too, unless another pod goes on with it. `error`: why this
  /// launcher or the job has failed; empty: it has not.
  std::vector<Span> end(const std::string& error, bool job_ends, WallTime now);

 private:
  struct Part {
    Span span;
    bool attempt = false;
  };

  Span part(std::string name, std::string key, WallTime begin, WallTime end) const;
  void begin(std::string name, std::string key, bool attempt, WallTime now);
  void finish(const std::string& error, WallTime now, std::vector<Span>& ended);

  const JobFacts job_;
  const WallTime began_;
  const std::string root_;
  std::vector<Span> before_;  // spans of before this launcher's start
  std::optional<Part> part_;
  rendezvous::GangPhase phase_ = rendezvous::GangPhase::kGathering;
  int attempt_;
  bool stepped_ = false;  // in this attempt
  std::uint64_t checkpoints_ = 0;
  double checkpoint_seconds_ = 0;
};

}  // namespace paceline::spans
