// SPDX-License-Identifier: Apache-2.0
// The summary of one rank's steps that rank 0's launcher receives, and the summary of a job that
// status, tables and messages show. Pure values and functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "common/telemetry/stats/attempt_use.hpp"
#include "common/telemetry/stats/phases.hpp"

namespace paceline::telemetry {

/// The steps of an attempt after its first kWarmSteps, with all that was between them. Memory is
/// allocated in the first steps, and libraries look for their quickest kernels.
struct SettledSteps {
  std::uint64_t steps = 0;
  double seconds = 0;
};
inline constexpr std::uint64_t kWarmSteps = 16;

/// What a rank is doing now, as the header of its ring says.
struct LiveState {
  std::size_t phase = 0;
  double seconds = 0;      // since it was entered
  std::uint64_t step = 0;  // the step in progress, from 1
  double silent = 0;       // seconds since the rank's last heartbeat
  // One communicator of NCCL, as NCCL's profiler plugin counts it: docs/designs/nccl-profiler.md.
  std::uint64_t collective = 0;  // number of the last collective that was called; 0 if unknown
  std::int64_t done = -1;        // number of the last that has ended on the device; -1 if unknown
  std::uint64_t group = 0;       // the same on all ranks of the communicator
  std::uint32_t group_size = 0;  // its ranks; 0 if unknown
};

/// Processor time that a rank wanted and did not get, in seconds since its start.
struct LostProcessor {
  double waited = 0;     // its training thread was ready to run, and had no processor
  double throttled = 0;  // the container was at its limit
  double stolen = 0;     // the hypervisor ran something else, per processor
};

struct RankSummary {
  int rank = 0;
  int node_rank = 0;
  std::uint64_t step = 0;     // in this attempt
  std::uint64_t steps = 0;    // ever seen
  std::uint64_t samples = 0;  // ever seen
  std::uint64_t tokens = 0;   // ever seen; 0 if they are not counted
  double p50 = 0;             // seconds, over the window
  double p95 = 0;
  double samples_per_second = 0;  // over the window
  int host_times_of_gpu = 0;      // 1 if a GPU computes, and only the host's phases are known
  double tokens_per_second = 0;   // over the window
  PhaseSeconds window{};          // seconds per phase over the last steps
  PhaseSeconds total{};           // seconds per phase ever seen
  PhaseSeconds device_window{};   // the same on the device's clock; all 0 if it is not measured
  PhaseSeconds device_total{};
  double device_follows = 0;  // share of the window's steps with PACELINE_FLAG_DEVICE_FOLLOWS
  SettledSteps settled;
  std::optional<LiveState> live = {};  // nullopt before its first mark, and after its end
  std::optional<LostProcessor> lost_processor = {};
  AttemptUse use;
};

/// Shares of the wall time, which add up to 1; all 0 if nothing was measured.
PhaseSeconds shares(const PhaseSeconds& seconds);

/// The device's clock: shares of the time between the first event of a step and its last.
struct DeviceSummary {
  PhaseSeconds breakdown{};
  /// The part in which the device is known to have had nothing to do: it waited for a batch, or a
  /// source that sees kernels found gaps. More may lie inside the phases.
  double idle = 0;
};

/// nullopt if no time is known.
std::optional<DeviceSummary> device_summary(const PhaseSeconds& seconds);

struct JobSummary {
  std::uint64_t step = 0;
  std::uint64_t steps = 0;
  double samples_per_second = 0;
  double tokens_per_second = 0;  // 0 if tokens are not counted
  double p50 = 0;
  double p95 = 0;
  PhaseSeconds breakdown{};  // shares, on the host's clock
  std::optional<DeviceSummary> device;
  std::string_view bottleneck = "unknown";
  int slowest_rank = -1;
  // the slowest rank's own time per step over that of the median rank; 0 if unknown
  double skew = 0;
  std::vector<RankSummary> ranks;
};

enum class Span {
  kWindow,  // the last steps: shown while the job runs
  kTotal,   // all steps: shown at the end
};

/// Combines the ranks' summaries. `ranks` may have any order; the result is ordered by rank.
JobSummary fold(std::vector<RankSummary> ranks, Span span);

}  // namespace paceline::telemetry
