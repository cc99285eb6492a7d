// SPDX-License-Identifier: Apache-2.0
#include "sweep.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

namespace paceline::device {
namespace {

// Which phase takes the time in which several are active. All before COMM_EXPOSED is compute.
constexpr std::array<std::uint32_t, 9> kPrecedence{
    PACELINE_PHASE_FORWARD,      PACELINE_PHASE_BACKWARD,   PACELINE_PHASE_RECOMPUTE,
    PACELINE_PHASE_OPTIMIZER,    PACELINE_PHASE_EVALUATION, PACELINE_PHASE_COMPUTE_UNDIVIDED,
    PACELINE_PHASE_COMM_EXPOSED, PACELINE_PHASE_H2D,        PACELINE_PHASE_MEMCPY_OTHER};

// A change of what is active. Equal times need no order: nothing is counted between them.
struct Edge {
  std::uint64_t ns;
  std::uint64_t launched_ns;  // of work that begins here
  std::int32_t change;        // +1: work begins, -1: it ends
  std::uint32_t phase;
};

std::uint32_t phase_at(std::span<const Mark> marks, std::uint64_t ns) {
  const auto after =
      std::ranges::upper_bound(marks, ns, {}, [](const Mark& mark) { return mark.ns; });
  return after == marks.begin() ? std::uint32_t{PACELINE_PHASE_UNATTRIBUTED}
                                : std::prev(after)->phase;
}

std::uint32_t phase_of(const Interval& interval, std::span<const Mark> marks) {
  switch (interval.work) {
    case Work::kCollective: return PACELINE_PHASE_COMM_EXPOSED;
    case Work::kCopyToDevice: return PACELINE_PHASE_H2D;
    case Work::kCopyOther: return PACELINE_PHASE_MEMCPY_OTHER;
    case Work::kGraph: return PACELINE_PHASE_COMPUTE_UNDIVIDED;
    case Work::kKernel: break;
  }
  if (interval.launched_ns == 0) return PACELINE_PHASE_COMPUTE_UNDIVIDED;
  return compute_phase(phase_at(marks, interval.launched_ns));
}

void count(const Interval& interval, Partition& partition) {
  switch (interval.work) {
    case Work::kCollective:
      ++partition.kernels;
      ++partition.collectives;
      break;
    case Work::kKernel: ++partition.kernels; break;
    case Work::kGraph: ++partition.graph_launches; break;
    case Work::kCopyToDevice: partition.h2d_bytes += interval.bytes; break;
    case Work::kCopyOther: break;
  }
}

// Divides idle time by the launch of the work that ended it; 0: not known.
void add_idle(std::uint64_t from, std::uint64_t to, std::uint64_t launched_ns,
              Partition& partition) {
  const std::uint64_t host_until = std::clamp(launched_ns, from, to);
  partition.ns[PACELINE_PHASE_IDLE_HOST] += host_until - from;
  partition.ns[PACELINE_PHASE_IDLE_GAP] += to - host_until;
}

// Walks over the edges. Time between two of them goes to the first active phase of kPrecedence.
class Walk {
 public:
  Walk(std::uint64_t begin_ns, std::uint64_t end_ns, Partition& partition)
      : begin_ns_(begin_ns), end_ns_(end_ns), at_ns_(begin_ns), partition_(partition) {}

  /// The edges of one time, in any order.
  void pass(std::span<const Edge> edges) {
    advance(edges.front().ns);
    const bool was_idle = busy_ == 0;
    std::uint64_t launched = 0;
    for (const Edge& edge : edges) {
      active_[edge.phase] += edge.change;
      busy_ += edge.change;
      if (edge.change < 0) continue;
      // If several begin together, the one that was launched first ended the idle time. One
      // whose launch is not known leaves the cause open.
      launched = begun_ ? std::min(launched, edge.launched_ns) : edge.launched_ns;
      begun_ = true;
    }
    if (was_idle && begun_) end_idle(edges.front().ns, launched);
    if (!was_idle && busy_ == 0) idle_since_ = edges.front().ns;
    begun_ = false;
  }

  void finish() {
    advance(end_ns_);
    if (busy_ == 0) end_idle(end_ns_, 0);
  }

 private:
  void advance(std::uint64_t to) {
    const std::uint64_t until = std::clamp(to, begin_ns_, end_ns_);
    const std::uint64_t passed = until - at_ns_;
    at_ns_ = until;
    if (busy_ == 0 || passed == 0) return;
    const auto active = [this](std::uint32_t phase) { return active_[phase] > 0; };
    const std::uint32_t phase = *std::ranges::find_if(kPrecedence, active);
    partition_.ns[phase] += passed;
    if (!active(PACELINE_PHASE_COMM_EXPOSED)) return;
    partition_.comm_total_ns += passed;
    if (phase == PACELINE_PHASE_COMM_EXPOSED) partition_.comm_exposed_ns += passed;
  }

  void end_idle(std::uint64_t at, std::uint64_t launched_ns) {
    const std::uint64_t from = std::clamp(idle_since_, begin_ns_, end_ns_);
    // The work that ends the idle time may begin after the span.
    add_idle(from, std::clamp(at, from, end_ns_), launched_ns, partition_);
    idle_since_ = at;
  }

  std::uint64_t begin_ns_;
  std::uint64_t end_ns_;
  std::uint64_t at_ns_;
  std::uint64_t idle_since_ = 0;
  std::array<std::int64_t, PACELINE_PHASE_COUNT> active_{};
  std::int64_t busy_ = 0;
  bool begun_ = false;
  Partition& partition_;
};

}  // namespace

std::optional<Busiest> busiest(std::span<const Interval> intervals) {
  struct Stream {
    std::uint64_t busy = 0;
    std::uint64_t since = 0;
  };
  std::map<std::uint32_t, std::uint64_t> devices;
  std::map<std::pair<std::uint32_t, std::uint32_t>, Stream> streams;
  for (const Interval& interval : intervals) {
    if (interval.end_ns <= interval.start_ns) continue;
    const std::uint64_t length = interval.end_ns - interval.start_ns;
    devices[interval.device] += length;
    Stream& stream = streams[{interval.device, interval.stream}];
    if (stream.busy == 0 || interval.start_ns < stream.since) stream.since = interval.start_ns;
    stream.busy += length;
  }
  if (devices.empty()) return std::nullopt;
  const std::uint32_t device =
      std::ranges::max_element(devices, {}, [](const auto& entry) { return entry.second; })->first;
  const auto busy = [device](const auto& entry) {
    return entry.first.first == device ? entry.second.busy : 0;
  };
  return Busiest{device, std::ranges::max_element(streams, {}, busy)->second.since};
}

std::uint32_t compute_phase(std::uint32_t phase) {
  switch (phase) {
    case PACELINE_PHASE_FORWARD:
    case PACELINE_PHASE_BACKWARD:
    case PACELINE_PHASE_RECOMPUTE:
    case PACELINE_PHASE_OPTIMIZER:
    case PACELINE_PHASE_EVALUATION: return phase;
    // The host waits inside backward for the communication of the gradients.
    case PACELINE_PHASE_COMM_EXPOSED: return PACELINE_PHASE_BACKWARD;
    default: return PACELINE_PHASE_COMPUTE_UNDIVIDED;
  }
}

Partition sweep(std::span<const Interval> intervals, std::uint32_t device, std::uint64_t begin_ns,
                std::uint64_t end_ns, std::span<const Mark> marks) {
  Partition partition;
  if (end_ns <= begin_ns) return partition;
  partition.window_ns = end_ns - begin_ns;
  std::vector<Edge> edges;
  edges.reserve(2 * intervals.size());
  for (const Interval& interval : intervals) {
    if (interval.device != device || interval.end_ns <= interval.start_ns) continue;
    if (interval.start_ns >= begin_ns && interval.start_ns < end_ns) count(interval, partition);
    if (interval.end_ns <= begin_ns) continue;
    partition.launches_known = partition.launches_known || interval.launched_ns != 0;
    const std::uint32_t phase = phase_of(interval, marks);
    edges.push_back({interval.start_ns, interval.launched_ns, 1, phase});
    edges.push_back({interval.end_ns, 0, -1, phase});
  }
  std::ranges::sort(edges, {}, &Edge::ns);
  Walk walk(begin_ns, end_ns, partition);
  for (std::span<const Edge> rest = edges; !rest.empty();) {
    // The work of the first time at or after the end still tells what the idle time before was.
    const auto same =
        std::ranges::find_if(rest, [&](const Edge& edge) { return edge.ns != rest.front().ns; });
    const auto size = static_cast<std::size_t>(same - rest.begin());
    walk.pass(rest.first(size));
    if (rest.front().ns >= end_ns) return partition;
    rest = rest.subspan(size);
  }
  walk.finish();
  return partition;
}

}  // namespace paceline::device
