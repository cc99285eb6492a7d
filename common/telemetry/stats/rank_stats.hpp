// SPDX-License-Identifier: Apache-2.0
// RankStats: totals and a window over the steps of one rank. Totals only grow (they are Prometheus
// counters) and cover all rings and attempts that this process saw. The window holds the last 512
// steps of the current attempt.
//
// Ownership: values, bounded memory (about 100 KiB a rank at most). Not thread-safe. Nothing fails.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "common/base/clock.hpp"
#include "common/telemetry/stats/phases.hpp"
#include "common/telemetry/stats/summary.hpp"

namespace paceline::telemetry {

/// Upper bounds of the step-time histogram, seconds.
inline constexpr std::array kStepBuckets{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
                                         0.05,   0.1,   0.25,   0.5,   1.0,  2.5,
                                         5.0,    10.0,  30.0,   60.0,  300.0};

struct RankTotals {
  std::uint64_t steps = 0;
  std::uint64_t samples = 0;
  std::uint64_t tokens = 0;
  bool has_tokens = false;
  std::uint64_t scaler_skips = 0;  // in which a gradient scaler skipped an optimizer
  std::uint64_t dropped = 0;       // overwritten, torn, implausible, or lost in the rank itself
  double wall_seconds = 0;         // of everything, including the time after the last step
  double step_seconds = 0;         // of steps only: the histogram's sum
  PhaseSeconds host{};
  PhaseSeconds device{};
  std::uint32_t device_phases = 0;  // a bit per phase that was ever measured; 0: no device times
  double comm_exposed_seconds = 0;
  double comm_hidden_seconds = 0;
  bool has_comm_hidden = false;
  std::array<std::uint64_t, kStepBuckets.size()> buckets{};  // not cumulative
};

class RankStats {
 public:
  static constexpr std::size_t kWindow = 512;
  /// With a window of 0 a rank takes less than 1 KiB, and its summary has no times.
  explicit RankStats(std::size_t window = kWindow) : most_(window) {}

  void add(const paceline_step_record& record);
  /// Whether the rank computes on a GPU. Then the host's times say nothing of what limits it.
  void set_on_gpu(bool is) { on_gpu_ = is; }
  void add_dropped(std::uint64_t records) { totals_.dropped += records; }
  /// Starts a new attempt: the window and the attempt's steps become empty; the totals stay. The
  /// ranks are started `now`.
  void begin_attempt(std::uint32_t attempt, SteadyTime now);

  const RankTotals& totals() const { return totals_; }
  RankSummary summary(int rank, int node_rank) const;

 private:
  struct Step {
    float wall;
    std::array<float, kPhases> host;
    std::array<float, kPhases> device;
    bool device_follows;  // PACELINE_FLAG_DEVICE_FOLLOWS
    std::uint64_t samples;
    std::uint64_t tokens;
  };

  void add_use(const paceline_step_record& record, double wall, const Step& step);

  std::size_t most_;
  RankTotals totals_;
  std::deque<Step> window_;
  std::uint64_t step_ = 0;
  std::uint64_t steps_of_attempt_ = 0;
  SettledSteps settled_;
  bool on_gpu_ = false;
  SteadyTime attempt_began_{};
  AttemptUse use_;
};

}  // namespace paceline::telemetry
