// SPDX-License-Identifier: Apache-2.0
// The sweep against a count of every nanosecond, and the amendment that is made of it.
#include "device/sweep.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "check.hpp"
#include "device/facts.hpp"

namespace {

using paceline::device::Interval;
using paceline::device::Mark;
using paceline::device::Partition;
using paceline::device::Work;

constexpr std::uint64_t kWindowBegin = 1000;
constexpr std::uint64_t kWindowEnd = 1200;

std::uint64_t sum(const Partition& partition) {
  return std::accumulate(partition.ns.begin(), partition.ns.end(), std::uint64_t{0});
}

Interval kernel(std::uint64_t start, std::uint64_t end, std::uint64_t launched = 0) {
  Interval one;
  one.start_ns = start;
  one.end_ns = end;
  one.launched_ns = launched;
  return one;
}

Interval work(Work kind, std::uint64_t start, std::uint64_t end, std::uint64_t bytes = 0) {
  Interval one = kernel(start, end);
  one.work = kind;
  one.bytes = bytes;
  return one;
}

Partition swept(const std::vector<Interval>& intervals, const std::vector<Mark>& marks = {}) {
  return paceline::device::sweep(intervals, 0, kWindowBegin, kWindowEnd, marks);
}

CASE(compute_hides_communication_and_communication_hides_copies) {
  const Partition found =
      swept({kernel(1000, 1050), work(Work::kCollective, 1040, 1090),
             work(Work::kCopyToDevice, 1080, 1110, 512), work(Work::kCopyOther, 1100, 1120)});
  CHECK_EQ(found.ns[PACELINE_PHASE_COMPUTE_UNDIVIDED], 50U);
  CHECK_EQ(found.ns[PACELINE_PHASE_COMM_EXPOSED], 40U);
  CHECK_EQ(found.ns[PACELINE_PHASE_H2D], 20U);
  CHECK_EQ(found.ns[PACELINE_PHASE_MEMCPY_OTHER], 10U);
  CHECK_EQ(found.ns[PACELINE_PHASE_IDLE_GAP], 80U);
  CHECK_EQ(found.comm_total_ns, 50U);
  CHECK_EQ(found.comm_exposed_ns, 40U);
  CHECK_EQ(found.kernels, 2U);
  CHECK_EQ(found.collectives, 1U);
  CHECK_EQ(found.h2d_bytes, 512U);
  CHECK_EQ(sum(found), 200U);
}

CASE(idle_time_before_a_launch_is_the_hosts) {
  // Idle from 1050 to 1100; the host launched at 1080. From 1150 on nothing more was recorded.
  const Partition found = swept({kernel(1000, 1050, 990), kernel(1100, 1150, 1080)});
  CHECK_EQ(found.ns[PACELINE_PHASE_IDLE_HOST], 30U);
  CHECK_EQ(found.ns[PACELINE_PHASE_IDLE_GAP], 70U);
  CHECK(found.launches_known);
}

CASE(work_after_the_window_tells_what_its_end_was) {
  const Partition found = swept({kernel(1000, 1150, 990), kernel(1300, 1350, 1190)});
  CHECK_EQ(found.ns[PACELINE_PHASE_IDLE_HOST], 40U);
  CHECK_EQ(found.ns[PACELINE_PHASE_IDLE_GAP], 10U);
  CHECK_EQ(found.kernels, 1U);
}

CASE(compute_is_divided_by_where_the_host_was_at_the_launch) {
  const std::vector<Mark> marks{{900, PACELINE_PHASE_FORWARD},
                                {1010, PACELINE_PHASE_BACKWARD},
                                {1020, PACELINE_PHASE_OPTIMIZER},
                                {1030, PACELINE_PHASE_OTHER}};
  const Partition found =
      swept({kernel(1000, 1040, 950), kernel(1030, 1080, 1010), kernel(1080, 1100, 1029),
             kernel(1100, 1110, 1030), kernel(1110, 1120, 800), kernel(1120, 1130)},
            marks);
  CHECK_EQ(found.ns[PACELINE_PHASE_FORWARD], 40U);
  CHECK_EQ(found.ns[PACELINE_PHASE_BACKWARD], 40U);
  CHECK_EQ(found.ns[PACELINE_PHASE_OPTIMIZER], 20U);
  CHECK_EQ(found.ns[PACELINE_PHASE_COMPUTE_UNDIVIDED], 30U);
}

CASE(a_graph_is_compute_whatever_it_holds) {
  const Partition found = swept({work(Work::kGraph, 1000, 1100)});
  CHECK_EQ(found.ns[PACELINE_PHASE_COMPUTE_UNDIVIDED], 100U);
  CHECK_EQ(found.graph_launches, 1U);
  CHECK_EQ(found.kernels, 0U);
  const paceline_step_record facts = paceline::device::facts_of(found, false);
  CHECK((facts.valid & PACELINE_VALID_COMM_TOTAL_NS) == 0);
  CHECK((facts.valid & PACELINE_VALID_COMM_EXPOSED_NS) == 0);
  CHECK_EQ(facts.source[PACELINE_PHASE_COMM_EXPOSED], 0);
  CHECK((facts.flags & PACELINE_FLAG_GRAPH_REPLAY) != 0);
}

CASE(only_the_busiest_device_counts) {
  std::vector<Interval> both{kernel(1000, 1100), kernel(1010, 1020)};
  both[0].device = 3;
  both[0].stream = 7;
  both[1].device = 1;
  const auto found = paceline::device::busiest(both);
  if (!CHECK(found.has_value())) return;
  CHECK_EQ(found->device, 3U);
  CHECK_EQ(found->since_ns, 1000U);
  const Partition of_three = paceline::device::sweep(both, 3, kWindowBegin, kWindowEnd, {});
  CHECK_EQ(of_three.ns[PACELINE_PHASE_COMPUTE_UNDIVIDED], 100U);
  CHECK_EQ(of_three.kernels, 1U);
  CHECK(!paceline::device::busiest({}).has_value());
}

// A copy stream that begins early must not hide how far the compute stream is behind.
CASE(recording_began_with_the_stream_that_works_longest) {
  std::vector<Interval> two{kernel(1000, 1010), kernel(1090, 1190)};
  two[0].stream = 1;
  two[1].stream = 2;
  CHECK_EQ(paceline::device::busiest(two)->since_ns, 1090U);
}

CASE(an_empty_or_reversed_window_has_no_time) {
  const std::vector<Interval> one{kernel(1000, 1100)};
  CHECK_EQ(sum(paceline::device::sweep(one, 0, 1100, 1100, {})), 0U);
  CHECK_EQ(sum(paceline::device::sweep(one, 0, 1100, 1000, {})), 0U);
  CHECK_EQ(swept({}).ns[PACELINE_PHASE_IDLE_GAP], 200U);
  CHECK_EQ(swept({kernel(1100, 1100), kernel(1150, 1120)}).ns[PACELINE_PHASE_IDLE_GAP], 200U);
}

CASE(a_partition_becomes_an_amendment_of_those_fields_alone) {
  const Partition found = swept(
      {kernel(1000, 1050, 990), work(Work::kCollective, 1040, 1090), kernel(1095, 1099, 1092)},
      {{900, PACELINE_PHASE_FORWARD}});
  const paceline_step_record facts = paceline::device::facts_of(found, true);
  CHECK_EQ(facts.flags, PACELINE_FLAG_SAMPLED_L2 | PACELINE_FLAG_TRUNCATED_POOL);
  CHECK_EQ(facts.valid, PACELINE_VALID_DEVICE_NS | PACELINE_VALID_DEVICE_WINDOW_NS |
                            PACELINE_VALID_COMM_TOTAL_NS | PACELINE_VALID_COMM_EXPOSED_NS |
                            PACELINE_VALID_KERNELS | PACELINE_VALID_GRAPH_LAUNCHES |
                            PACELINE_VALID_H2D_BYTES);
  CHECK_EQ(facts.source[PACELINE_PHASE_FORWARD], PACELINE_SOURCE_CUPTI << 4);
  CHECK_EQ(facts.source[PACELINE_PHASE_BACKWARD], 0);
  CHECK_EQ(facts.source[PACELINE_PHASE_IDLE_HOST], PACELINE_SOURCE_CUPTI << 4);
  CHECK_EQ(facts.device_ns[PACELINE_PHASE_FORWARD], 54U);
  CHECK_EQ(facts.device_window_ns, 200U);
  CHECK_EQ(facts.kernels, 3U);
}

// What each nanosecond belongs to, looked up one by one.
class EveryNanosecond {
 public:
  EveryNanosecond(const std::vector<Interval>& intervals, const std::vector<Mark>& marks)
      : intervals_(intervals), marks_(marks) {
    for (std::uint64_t at = kWindowBegin; at < kWindowEnd; ++at) ++ns[phase(at)];
  }

  std::array<std::uint64_t, PACELINE_PHASE_COUNT> ns{};
  std::uint64_t comm_total = 0;
  std::uint64_t comm_exposed = 0;

 private:
  static bool covers(const Interval& one, std::uint64_t at) {
    return one.device == 0 && one.start_ns <= at && at < one.end_ns;
  }

  std::uint32_t of_kernel(const Interval& one) const {
    if (one.work == Work::kGraph || one.launched_ns == 0) return PACELINE_PHASE_COMPUTE_UNDIVIDED;
    std::uint32_t phase = PACELINE_PHASE_UNATTRIBUTED;
    for (const Mark& mark : marks_) {
      if (mark.ns <= one.launched_ns) phase = mark.phase;
    }
    return paceline::device::compute_phase(phase);
  }

  std::uint32_t phase(std::uint64_t at) {
    bool comm = false;
    bool to_device = false;
    bool other = false;
    std::vector<std::uint32_t> compute;
    for (const Interval& one : intervals_) {
      if (!covers(one, at)) continue;
      if (one.work == Work::kKernel || one.work == Work::kGraph) compute.push_back(of_kernel(one));
      comm = comm || one.work == Work::kCollective;
      to_device = to_device || one.work == Work::kCopyToDevice;
      other = other || one.work == Work::kCopyOther;
    }
    if (comm) ++comm_total;
    for (const std::uint32_t first : {PACELINE_PHASE_FORWARD, PACELINE_PHASE_BACKWARD,
                                      PACELINE_PHASE_OPTIMIZER, PACELINE_PHASE_COMPUTE_UNDIVIDED}) {
      if (std::ranges::find(compute, first) != compute.end()) return first;
    }
    if (comm) {
      ++comm_exposed;
      return PACELINE_PHASE_COMM_EXPOSED;
    }
    if (to_device) return PACELINE_PHASE_H2D;
    if (other) return PACELINE_PHASE_MEMCPY_OTHER;
    return idle(at);
  }

  // The next work of this device, and when the host launched the first of what begins then.
  std::uint32_t idle(std::uint64_t at) const {
    std::uint64_t next = UINT64_MAX;
    std::uint64_t launched = 0;
    for (const Interval& one : intervals_) {
      if (one.device != 0 || one.start_ns <= at || one.start_ns >= one.end_ns) continue;
      if (one.start_ns < next) launched = one.launched_ns;
      if (one.start_ns == next) launched = std::min(launched, one.launched_ns);
      next = std::min(next, one.start_ns);
    }
    return launched > at ? PACELINE_PHASE_IDLE_HOST : PACELINE_PHASE_IDLE_GAP;
  }

  const std::vector<Interval>& intervals_;
  const std::vector<Mark>& marks_;
};

std::vector<Interval> random_intervals(std::mt19937& random) {
  const auto upto = [&](std::uint64_t most) {
    return std::uniform_int_distribution<std::uint64_t>(0, most)(random);
  };
  std::vector<Interval> intervals(upto(14));
  for (Interval& one : intervals) {
    one.start_ns = 950 + upto(300);
    // Some have no length, some end before they start.
    one.end_ns = one.start_ns + upto(60) - std::min<std::uint64_t>(5, upto(10));
    if (upto(3) != 0) one.launched_ns = one.start_ns - upto(80);
    one.work = static_cast<Work>(upto(4));
    if (one.work != Work::kKernel && one.work != Work::kCollective) one.launched_ns = 0;
    one.device = upto(9) == 0 ? 1 : 0;
  }
  return intervals;
}

CASE(the_sweep_agrees_with_a_count_of_every_nanosecond) {
  std::mt19937 random(20261124);
  const std::vector<Mark> marks{
      {940, PACELINE_PHASE_DATA_WAIT},  {960, PACELINE_PHASE_FORWARD},
      {1040, PACELINE_PHASE_BACKWARD},  {1090, PACELINE_PHASE_COMM_EXPOSED},
      {1100, PACELINE_PHASE_OPTIMIZER}, {1150, PACELINE_PHASE_OTHER}};
  for (int round = 0; round < 3000 && paceline::check::failures() == 0; ++round) {
    std::vector<Interval> intervals = random_intervals(random);
    const bool with_marks = round % 2 == 0;
    const std::vector<Mark> used = with_marks ? marks : std::vector<Mark>{};
    const Partition found = swept(intervals, used);
    const EveryNanosecond expected(intervals, used);
    CHECK_EQ(sum(found), kWindowEnd - kWindowBegin);
    for (std::uint32_t phase = 0; phase < PACELINE_PHASE_COUNT; ++phase)
      CHECK_EQ(found.ns[phase], expected.ns[phase]);
    CHECK_EQ(found.comm_total_ns, expected.comm_total);
    CHECK_EQ(found.comm_exposed_ns, expected.comm_exposed);
    // The order of arrival does not matter.
    std::ranges::shuffle(intervals, random);
    const Partition again = swept(intervals, used);
    CHECK(again.ns == found.ns);
    CHECK_EQ(again.kernels, found.kernels);
    CHECK_EQ(again.h2d_bytes, found.h2d_bytes);
    // Two halves are the whole.
    const std::uint64_t middle = kWindowBegin + 1 + static_cast<std::uint64_t>(round) % 199;
    const Partition left = paceline::device::sweep(intervals, 0, kWindowBegin, middle, used);
    const Partition right = paceline::device::sweep(intervals, 0, middle, kWindowEnd, used);
    for (std::uint32_t phase = 0; phase < PACELINE_PHASE_COUNT; ++phase)
      CHECK_EQ(left.ns[phase] + right.ns[phase], found.ns[phase]);
    CHECK_EQ(left.kernels + right.kernels, found.kernels);
  }
}

}  // namespace
