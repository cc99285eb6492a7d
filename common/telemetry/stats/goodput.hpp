// SPDX-License-Identifier: Apache-2.0
// Goodput: the share of a job's wall time in which it trained, and what the rest was spent on. The
// uses of time always add up to the wall time since the job's first start. Pure values and
// functions; GoodputLedger borrows nothing and is told the time.
//
// Steps after the last checkpoint that are trained again were not useful. A program that numbers
// its steps (paceline.step) says by its first number how far it went back. Otherwise the last
// checkpoint mark says so: what came after it is lost. If the job has shown neither, the loss is
// unknown: it stays in the useful time, and the restart is counted in `unknown_losses`.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "common/base/clock.hpp"
#include "common/telemetry/stats/summary.hpp"

namespace paceline::telemetry {

enum class Use : std::uint8_t {
  kUseful,
  kWaiting,     // in the queue, and for other replicas
  kStarting,    // from the start of the ranks to their first mark
  kRestarting,  // from a failure to the first mark after it
  kLostSteps,
  kCheckpoint,
  kEvaluation,
  kUnexplained,  // no mark says what it was
};
inline constexpr std::size_t kUses = 8;
using UseSeconds = std::array<double, kUses>;

/// "useful", "waiting", … as documents and metrics spell them.
std::string_view use_name(std::size_t use);

struct Goodput {
  UseSeconds seconds{};
  bool trained = false;         // a step was seen, so that the share says something
  bool checkpointed = false;    // a checkpoint mark was seen
  double since_checkpoint = 0;  // useful time that a failure now would lose
  int unknown_losses = 0;       // restarts whose lost steps cannot be told
  std::int64_t user_step = -1;  // the last one before the last failure
  double step_seconds = 0;      // useful time of a step before the last failure
  bool operator==(const Goodput&) const = default;

  double& operator[](Use use) { return seconds[static_cast<std::size_t>(use)]; }
  double operator[](Use use) const { return seconds[static_cast<std::size_t>(use)]; }
  double wall() const;
  double ratio() const;  // 0 if there is no time
};

/// What the gang did in a span of time.
enum class Activity : std::uint8_t { kGathering, kRunning, kRestarting, kEnded };

struct TimeSpan {
  Activity activity = Activity::kGathering;
  bool after_failure = false;  // what precedes the first mark counts as restarting
  double seconds = 0;
  AttemptUse use;  // of an attempt that runs
};

/// The mean over the ranks that have measured something in this attempt. Their least time since a
/// checkpoint counts, because one rank may write for all.
AttemptUse combine(const std::vector<RankSummary>& ranks, int attempt);

/// `before` with the time of the span.
Goodput extended(Goodput before, const TimeSpan& span);

/// `before` after the end of an attempt, whose steps may have to be trained again.
Goodput interrupted(Goodput before);

/// Follows one gang through its attempts.
class GoodputLedger {
 public:
  /// `earlier` is what the job's earlier pods knew; `gap` the seconds since they last told it.
  /// `failed`: a failure cost the job a restart meanwhile.
  GoodputLedger(SteadyTime now, const Goodput& earlier, double gap, bool failed);

  /// Whether `change` has something to do.
  bool differs(Activity activity, int attempt) const {
    return activity != activity_ || attempt != attempt_;
  }
  /// The gang does something else from now on. `ranks` is the last that is known of them.
  void change(SteadyTime now, Activity activity, int attempt,
              const std::vector<RankSummary>& ranks);
  Goodput at(SteadyTime now, const std::vector<RankSummary>& ranks) const;

 private:
  TimeSpan open(SteadyTime now, const std::vector<RankSummary>& ranks) const;

  Goodput closed_;  // everything before since_
  SteadyTime since_;
  Activity activity_ = Activity::kGathering;
  int attempt_ = -1;
  bool after_failure_;
};

}  // namespace paceline::telemetry
