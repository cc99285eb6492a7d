// SPDX-License-Identifier: Apache-2.0
#include "common/telemetry/stats/goodput.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <optional>

namespace paceline::telemetry {
namespace {

constexpr std::array<std::string_view, kUses> kUseNames{"useful",     "waiting",    "starting",
                                                        "restarting", "lostSteps",  "checkpoint",
                                                        "evaluation", "unexplained"};

/// Launchers report every 2 s.
constexpr double kReportSeconds = 2.5;

double covered(const AttemptUse& use) {
  return use.useful + use.checkpoint + use.evaluation + use.unexplained;
}

/// How long ranks that train may be silent: the step under way, and the way of their reports. After
/// the last step, which leaves time without an explanation, they do not train.
double in_progress(const AttemptUse& use) {
  if (use.steps == 0 || use.unexplained > 0) return 0;
  return kReportSeconds + 2 * use.useful / static_cast<double>(use.steps);
}

/// Decides what the last failures have cost, as far as it can be told by now.
void settle(Goodput& goodput, const AttemptUse& next) {
  if (goodput.unknown_losses == 0) return;
  std::optional<double> lost;
  if (goodput.user_step >= 0 && next.first_user_step >= 0) {
    const auto again = std::max<std::int64_t>(0, goodput.user_step - next.first_user_step + 1);
    lost = static_cast<double>(again) * goodput.step_seconds;
  } else if (goodput.checkpointed || next.checkpoints > 0) {
    lost = goodput.since_checkpoint;
  }
  if (!lost) return;
  const double moved = std::min(*lost, goodput[Use::kUseful]);
  goodput[Use::kUseful] -= moved;
  goodput[Use::kLostSteps] += moved;
  goodput.since_checkpoint = 0;
  goodput.unknown_losses = 0;
  goodput.user_step = -1;
}

void add_attempt(Goodput& goodput, const TimeSpan& span) {
  AttemptUse use = span.use;
  if (covered(use) <= 0) use.lead = span.seconds;  // no mark yet
  // A rank's clock and this one differ by little; the uses must not exceed the time.
  const double told = use.lead + covered(use);
  const double fit = told > span.seconds ? span.seconds / told : 1;
  goodput[span.after_failure ? Use::kRestarting : Use::kStarting] += use.lead * fit;
  goodput[Use::kUseful] += use.useful * fit;
  goodput[Use::kCheckpoint] += use.checkpoint * fit;
  goodput[Use::kEvaluation] += use.evaluation * fit;
  const double rest = std::max(0.0, span.seconds - told * fit);
  const double under_way = std::min(rest, in_progress(use));
  goodput[Use::kUseful] += under_way;
  goodput[Use::kUnexplained] += use.unexplained * fit + rest - under_way;
  if (use.steps == 0) return;
  goodput.trained = true;
  if (use.checkpoints > 0) {
    goodput.checkpointed = true;
    goodput.since_checkpoint = std::min(use.since_checkpoint, use.useful) * fit + under_way;
  } else {
    goodput.since_checkpoint += use.useful * fit + under_way;
  }
  if (use.last_user_step < 0) return;
  goodput.user_step = use.last_user_step;
  goodput.step_seconds = use.useful * fit / static_cast<double>(use.steps);
}

}  // namespace

std::string_view use_name(std::size_t use) { return use < kUses ? kUseNames[use] : "unknown"; }

double Goodput::wall() const { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }

double Goodput::ratio() const {
  const double all = wall();
  return all > 0 ? (*this)[Use::kUseful] / all : 0;
}

AttemptUse combine(const std::vector<RankSummary>& ranks, int attempt) {
  AttemptUse all;
  all.attempt = attempt;
  double measured = 0;
  std::optional<double> since;
  for (const RankSummary& rank : ranks) {
    const AttemptUse& use = rank.use;
    if (use.attempt != attempt || covered(use) <= 0) continue;
    ++measured;
    all.steps = std::max(all.steps, use.steps);
    all.lead += use.lead;
    all.useful += use.useful;
    all.checkpoint += use.checkpoint;
    all.evaluation += use.evaluation;
    all.unexplained += use.unexplained;
    all.checkpoints = std::max(all.checkpoints, use.checkpoints);
    if (use.checkpoints > 0) since = std::min(since.value_or(use.useful), use.since_checkpoint);
    if (use.first_user_step >= 0 &&
        (all.first_user_step < 0 || use.first_user_step < all.first_user_step))
      all.first_user_step = use.first_user_step;
    all.last_user_step = std::max(all.last_user_step, use.last_user_step);
  }
  if (measured == 0) return all;
  for (double* mean : {&all.lead, &all.useful, &all.checkpoint, &all.evaluation, &all.unexplained})
    *mean /= measured;
  all.since_checkpoint = since.value_or(all.useful);
  return all;
}

Goodput extended(Goodput before, const TimeSpan& span) {
  switch (span.activity) {
    case Activity::kGathering:
      before[span.after_failure ? Use::kRestarting : Use::kWaiting] += span.seconds;
      break;
    case Activity::kRestarting: before[Use::kRestarting] += span.seconds; break;
    case Activity::kRunning:
      if (span.use.steps > 0) settle(before, span.use);
      add_attempt(before, span);
      break;
    case Activity::kEnded: break;
  }
  return before;
}

Goodput interrupted(Goodput before) {
  if (before.since_checkpoint > 0 || before.user_step >= 0) ++before.unknown_losses;
  return before;
}

GoodputLedger::GoodputLedger(SteadyTime now, const Goodput& earlier, double gap, bool failed)
    : closed_(interrupted(extended(earlier, {Activity::kGathering, failed, gap, {}}))),
      since_(now),
      after_failure_(failed) {}

TimeSpan GoodputLedger::open(SteadyTime now, const std::vector<RankSummary>& ranks) const {
  const double seconds = std::chrono::duration<double>(now - since_).count();
  return {activity_, after_failure_, std::max(0.0, seconds),
          activity_ == Activity::kRunning ? combine(ranks, attempt_) : AttemptUse{}};
}

void GoodputLedger::change(SteadyTime now, Activity activity, int attempt,
                           const std::vector<RankSummary>& ranks) {
  closed_ = extended(std::move(closed_), open(now, ranks));
  if (activity_ == Activity::kRunning && activity != Activity::kEnded) {
    closed_ = interrupted(std::move(closed_));
    after_failure_ = true;
  }
  since_ = now;
  activity_ = activity;
  attempt_ = attempt;
}

Goodput GoodputLedger::at(SteadyTime now, const std::vector<RankSummary>& ranks) const {
  Goodput goodput = extended(closed_, open(now, ranks));
  settle(goodput, {});  // what a checkpoint mark tells, until the program tells better
  return goodput;
}

}  // namespace paceline::telemetry
