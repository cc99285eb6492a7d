// SPDX-License-Identifier: Apache-2.0
#include "common/telemetry/stats/rank_stats.hpp"

#include <algorithm>
#include <chrono>
#include <vector>

namespace paceline::telemetry {
namespace {

constexpr double kPerSecond = 1e9;

double percentile(std::vector<float>& values, double fraction) {
  if (values.empty()) return 0;
  const auto index = std::min(
      values.size() - 1, static_cast<std::size_t>(fraction * static_cast<double>(values.size())));
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(index);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

}  // namespace

void RankStats::add(const paceline_step_record& record) {
  const double wall = static_cast<double>(record.wall_ns) / kPerSecond;
  Step step{static_cast<float>(wall), {}, {}, false, 0, 0};
  totals_.wall_seconds += wall;
  if ((record.valid & PACELINE_VALID_HOST_NS) != 0) {
    for (std::size_t phase = 0; phase < kPhases; ++phase) {
      const double seconds = static_cast<double>(record.host_ns[phase]) / kPerSecond;
      totals_.host[phase] += seconds;
      step.host[phase] = static_cast<float>(seconds);
    }
  } else {
    // A step without phases is wall time whose use is unknown.
    totals_.host[PACELINE_PHASE_UNATTRIBUTED] += wall;
    step.host[PACELINE_PHASE_UNATTRIBUTED] = step.wall;
  }
  if ((record.valid & PACELINE_VALID_DEVICE_NS) != 0) {
    for (std::size_t phase = 0; phase < kPhases; ++phase) {
      const double seconds = static_cast<double>(record.device_ns[phase]) / kPerSecond;
      totals_.device[phase] += seconds;
      step.device[phase] = static_cast<float>(seconds);
      // A phase that the source cannot tell is absent, which is not 0.
      if ((record.source[phase] >> 4U) != PACELINE_SOURCE_ABSENT || record.device_ns[phase] != 0)
        totals_.device_phases |= 1U << phase;
    }
    step.device_follows = (record.flags & PACELINE_FLAG_DEVICE_FOLLOWS) != 0;
  }
  if ((record.valid & PACELINE_VALID_COMM_EXPOSED_NS) != 0) {
    totals_.comm_exposed_seconds += static_cast<double>(record.comm_exposed_ns) / kPerSecond;
  } else if ((record.valid & PACELINE_VALID_HOST_NS) != 0) {
    totals_.comm_exposed_seconds += step.host[PACELINE_PHASE_COMM_EXPOSED];
  }
  if ((record.valid & PACELINE_VALID_COMM_TOTAL_NS) != 0 &&
      (record.valid & PACELINE_VALID_COMM_EXPOSED_NS) != 0) {
    totals_.has_comm_hidden = true;
    if (record.comm_total_ns > record.comm_exposed_ns) {
      totals_.comm_hidden_seconds +=
          static_cast<double>(record.comm_total_ns - record.comm_exposed_ns) / kPerSecond;
    }
  }
  if ((record.valid & PACELINE_VALID_LOST_EVENTS) != 0) totals_.dropped += record.lost_events;
  if ((record.valid & PACELINE_VALID_SAMPLES) != 0) {
    totals_.samples += record.samples;
    step.samples = record.samples;
  }
  if ((record.valid & PACELINE_VALID_TOKENS) != 0) {
    totals_.has_tokens = true;
    totals_.tokens += record.tokens;
    step.tokens = record.tokens;
  }
  add_use(record, wall, step);
  // time after the last step belongs to no step
  if ((record.flags & PACELINE_FLAG_FINAL) != 0) return;

  ++totals_.steps;
  if ((record.flags & PACELINE_FLAG_SCALER_SKIP) != 0) ++totals_.scaler_skips;
  totals_.step_seconds += wall;
  for (std::size_t bucket = 0; bucket < kStepBuckets.size(); ++bucket) {
    if (wall <= kStepBuckets[bucket]) {
      ++totals_.buckets[bucket];
      break;
    }
  }
  step_ = record.step;
  if (++steps_of_attempt_ > kWarmSteps) {
    ++settled_.steps;
    settled_.seconds += wall;
  }
  if (most_ == 0) return;
  window_.push_back(step);
  if (window_.size() > most_) window_.pop_front();
}

void RankStats::add_use(const paceline_step_record& record, double wall, const Step& step) {
  const bool first = use_.useful + use_.checkpoint + use_.evaluation + use_.unexplained <= 0;
  if (first) {
    const auto began = std::chrono::duration<double>(attempt_began_.time_since_epoch()).count();
    use_.lead = std::max(0.0, static_cast<double>(record.start_ns) / kPerSecond - began);
  }
  const double checkpoint = step.host[PACELINE_PHASE_CHECKPOINT];
  const double evaluation = step.host[PACELINE_PHASE_EVALUATION];
  const double rest = std::max(0.0, wall - checkpoint - evaluation);
  use_.checkpoint += checkpoint;
  use_.evaluation += evaluation;
  const bool final = (record.flags & PACELINE_FLAG_FINAL) != 0;
  (final ? use_.unexplained : use_.useful) += rest;
  // Checkpoints belong to the step after them, so the rest of this step came later.
  if (checkpoint > 0) {
    ++use_.checkpoints;
    use_.since_checkpoint = 0;
  }
  if (final) return;
  use_.since_checkpoint += rest;
  ++use_.steps;
  if ((record.valid & PACELINE_VALID_USER_STEP) == 0 || record.user_step < 0) return;
  if (use_.first_user_step < 0) use_.first_user_step = record.user_step;
  use_.last_user_step = record.user_step;
}

void RankStats::begin_attempt(std::uint32_t attempt, SteadyTime now) {
  attempt_began_ = now;
  use_ = {};
  use_.attempt = static_cast<int>(attempt);
  window_.clear();
  step_ = 0;
  steps_of_attempt_ = 0;
  settled_ = {};
}

RankSummary RankStats::summary(int rank, int node_rank) const {
  RankSummary summary;
  summary.rank = rank;
  summary.node_rank = node_rank;
  summary.step = step_;
  summary.steps = totals_.steps;
  summary.samples = totals_.samples;
  summary.tokens = totals_.tokens;
  summary.total = totals_.host;
  summary.device_total = totals_.device;
  summary.settled = settled_;
  summary.use = use_;
  std::vector<float> walls;
  walls.reserve(window_.size());
  double wall = 0;
  std::uint64_t samples = 0;
  std::size_t followed = 0;
  std::uint64_t tokens = 0;
  for (const Step& step : window_) {
    walls.push_back(step.wall);
    wall += step.wall;
    samples += step.samples;
    for (std::size_t phase = 0; phase < kPhases; ++phase) {
      summary.window[phase] += step.host[phase];
      summary.device_window[phase] += step.device[phase];
    }
    tokens += step.tokens;
    if (step.device_follows) ++followed;
  }
  if (!window_.empty())
    summary.device_follows = static_cast<double>(followed) / static_cast<double>(window_.size());
  const bool device_known = sum(window_.empty() ? summary.device_total : summary.device_window) > 0;
  summary.host_times_of_gpu = on_gpu_ && !device_known ? 1 : 0;
  summary.p50 = percentile(walls, 0.50);
  summary.p95 = percentile(walls, 0.95);
  summary.samples_per_second = wall > 0 ? static_cast<double>(samples) / wall : 0;
  summary.tokens_per_second = wall > 0 ? static_cast<double>(tokens) / wall : 0;
  return summary;
}

}  // namespace paceline::telemetry
