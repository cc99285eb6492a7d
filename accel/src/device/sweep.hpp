// SPDX-License-Identifier: Apache-2.0
// Turns what a device did in a span of time into the device partition of a step record.
//
// Every nanosecond of the span belongs to exactly one phase. If several kinds of work overlap, the
// first of this list takes the time: compute, communication, copies from the host, other copies.
// Time without work is idle. If the host launched the next work only after the idle time began, the
// part before the launch is waiting for the host (idle_host). The rest is a gap (idle_gap).
//
// Pure: values in, values out. The order of the intervals does not matter. Nothing fails: an
// interval that ends before it starts counts as nothing.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "paceline/step_record.h"

namespace paceline::device {

enum class Work : std::uint8_t {
  kKernel,
  kGraph,  // a whole CUDA graph: its kernels, copies and collectives are not told apart
  kCollective,
  kCopyToDevice,
  kCopyOther  // other copies and memsets
};

/// A piece of work of the device. Times are CLOCK_MONOTONIC.
struct Interval {
  std::uint64_t start_ns = 0;
  std::uint64_t end_ns = 0;
  std::uint64_t launched_ns = 0;  // when the host launched it; 0: not known
  std::uint64_t bytes = 0;        // of a copy
  std::uint32_t device = 0;
  std::uint32_t stream = 0;
  Work work = Work::kKernel;
};

/// From `ns` to the next mark the host was in `phase`.
struct Mark {
  std::uint64_t ns = 0;
  std::uint32_t phase = PACELINE_PHASE_UNATTRIBUTED;
};

struct Partition {
  std::array<std::uint64_t, PACELINE_PHASE_COUNT> ns{};  // sums to window_ns
  std::uint64_t window_ns = 0;
  std::uint64_t comm_total_ns = 0;    // a collective ran, whatever ran beside it
  std::uint64_t comm_exposed_ns = 0;  // a collective ran, and no compute
  std::uint64_t h2d_bytes = 0;
  std::uint32_t kernels = 0;  // started in the span, collectives included, those of graphs not
  std::uint32_t graph_launches = 0;
  std::uint32_t collectives = 0;
  bool launches_known = false;  // of at least one kernel: idle time is divided
};

struct Busiest {
  std::uint32_t device = 0;
  /// First start on the stream of this device that worked longest. What the host launched into it
  /// before recording began has ended by then.
  std::uint64_t since_ns = 0;
};

/// The device that worked longest; of several the one with the lowest number. nullopt if none did.
std::optional<Busiest> busiest(std::span<const Interval> intervals);

/// The phase of compute that was launched while the host was in `phase`.
std::uint32_t compute_phase(std::uint32_t phase);

/// Divides [begin_ns, end_ns) by the work of `device`. `marks` is ascending in time. Without marks,
/// or for work whose launch is not known, compute is COMPUTE_UNDIVIDED. Intervals outside the span
/// may be passed: the first one after it tells what the idle time at its end was.
Partition sweep(std::span<const Interval> intervals, std::uint32_t device, std::uint64_t begin_ns,
                std::uint64_t end_ns, std::span<const Mark> marks);

}  // namespace paceline::device
