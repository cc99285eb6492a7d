// SPDX-License-Identifier: Apache-2.0
// The device's times under the fake driver, whose clock and work the test knows.
#include <random>
#include <vector>

#include "check.hpp"
#include "timeline_world.hpp"

namespace timeline_cases {

CASE(a_step_on_a_device_has_the_devices_times) {
  TimelineWorld world;
  world.step();
  world.step();
  world.step();
  world.wait();
  const auto found = world.poll();
  if (!CHECK(found.size() == 2U)) return;
  CHECK_EQ(found[0].step, 1U);
  const paceline_step_record& record = found[1];
  CHECK_EQ(record.step, 2U);
  CHECK_EQ(record.ring_epoch, 1U);
  // 6.5 ms of work are left when the batch is asked for, which takes 10 ms.
  CHECK(record.device_ns[PACELINE_PHASE_DATA_WAIT] > 3 * kMilli &&
        record.device_ns[PACELINE_PHASE_DATA_WAIT] < 4 * kMilli);
  CHECK(near(record.device_ns[PACELINE_PHASE_FORWARD], 1 * kMilli + kMicro));
  CHECK(near(record.device_ns[PACELINE_PHASE_BACKWARD], 2 * kMilli));
  CHECK(near(record.device_ns[PACELINE_PHASE_COMM_EXPOSED], 500 * kMicro));
  CHECK(near(record.device_ns[PACELINE_PHASE_OPTIMIZER], 3 * kMilli));
  CHECK_EQ(sum(record), record.device_window_ns);
  CHECK(near(record.comm_exposed_ns, 500 * kMicro));
  CHECK_EQ(record.valid, PACELINE_VALID_DEVICE_NS | PACELINE_VALID_DEVICE_WINDOW_NS |
                             PACELINE_VALID_COMM_EXPOSED_NS);
  CHECK_EQ(record.source[PACELINE_PHASE_FORWARD], PACELINE_SOURCE_EVENT << 4);
  // Gaps between kernels are not seen by events: absent, not 0.
  CHECK_EQ(record.source[PACELINE_PHASE_IDLE_GAP], 0);
  CHECK_EQ(record.source[PACELINE_PHASE_IDLE_HOST], 0);
  CHECK_EQ(record.flags, 0U);
  CHECK_EQ(world.cuda.calls("cuEventRecord"), 7 * 3);
}

// Any order of work, waits and polls: the intervals are those of the stream, and add up.
CASE(the_partition_of_the_device_is_exact_for_any_program) {
  TimelineWorld world;
  std::mt19937 random(7);
  const auto some = [&](std::uint64_t most) { return std::uint64_t{random()} % most; };
  std::vector<paceline_step_record> found;
  for (int i = 0; i < 400; ++i) {
    const auto parts = 1 + some(3);
    for (std::uint64_t part = 0; part < parts; ++part) {
      if (some(4) != 0) {
        world.ask();
        world.pass(some(4 * kMilli));
        world.deliver();
      }
      world.queue(some(4 * kMilli));
      world.pass(some(kMilli));
      world.backward(some(4 * kMilli), some(2) * some(kMilli));
      world.queue(some(kMilli));
    }
    world.optimize(some(2 * kMilli));
    if (some(2) != 0) world.queue(some(kMilli));
    if (some(5) == 0) world.wait();
    if (some(3) == 0) std::ranges::move(world.poll(), std::back_inserter(found));
  }
  world.wait();
  std::ranges::move(world.poll(), std::back_inserter(found));
  CHECK(found.size() > 350);
  // The oracle: what the boundaries of each step say of the stream.
  std::vector<std::vector<TimelineWorld::Boundary>> steps(1);
  for (const auto& boundary : world.boundaries) {
    steps.back().push_back(boundary);
    if (boundary.end) steps.push_back({boundary});
  }
  for (const paceline_step_record& record : found) {
    CHECK_EQ(sum(record), record.device_window_ns);
    const auto& expected = steps[record.step - 1];
    std::uint64_t truth[PACELINE_PHASE_COUNT] = {};
    for (std::size_t i = 1; i < expected.size(); ++i)
      truth[paceline::trace::device_phase(expected[i].phases)] +=
          expected[i].device_ns - expected[i - 1].device_ns;
    for (int phase = 0; phase < PACELINE_PHASE_COUNT; ++phase) {
      const std::uint64_t off = record.device_ns[phase] > truth[phase]
                                    ? record.device_ns[phase] - truth[phase]
                                    : truth[phase] - record.device_ns[phase];
      if (!CHECK(off <= 8 * kRounding)) return;
    }
  }
}

CASE(a_device_that_never_lags_is_said_to_follow) {
  TimelineWorld bound;
  for (int i = 0; i < 3; ++i) {
    bound.ask();
    bound.deliver();
    for (int kernel = 0; kernel < 100; ++kernel) {
      bound.queue(5 * kMicro);
      bound.pass(30 * kMicro);
    }
    bound.backward(20 * kMicro, 0);
    bound.pass(50 * kMicro);
    bound.optimize(20 * kMicro);
    bound.pass(50 * kMicro);
  }
  bound.ask();
  const auto found = bound.poll();
  if (!CHECK(found.size() == 3U)) return;
  CHECK_EQ(found[2].flags, PACELINE_FLAG_DEVICE_FOLLOWS);
}

// The host waits for room in the queue at every kernel. So its lead is the same at all boundaries,
// but the device has not done what was queued.
CASE(a_device_that_lags_by_the_same_time_does_not_follow) {
  TimelineWorld full;
  full.queue(20 * kMilli);
  const auto compute = [&] {
    full.queue(kMilli);
    full.pass(kMilli);
  };
  for (int i = 0; i < 4; ++i) {
    full.ask();
    full.deliver();
    compute();
    full.mark([](PhaseMachine& m, std::uint64_t at) { m.backward_enter(at); });
    compute();
    full.mark([](PhaseMachine& m, std::uint64_t at) { m.backward_leave(at); });
    full.mark([](PhaseMachine& m, std::uint64_t at) { m.optimizer_enter(at, 0); });
    compute();
    full.mark([](PhaseMachine& m, std::uint64_t at) { m.optimizer_leave(at, 0); });
  }
  full.wait();
  const auto found = full.poll();
  if (!CHECK(found.size() == 3)) return;
  for (const paceline_step_record& record : found) CHECK_EQ(record.flags, 0U);
}

// An event of a second stream may be complete before one that was recorded earlier.
CASE(events_of_two_streams_never_make_a_time_negative) {
  TimelineWorld world;
  void* const first = world.stream;
  void* const second = reinterpret_cast<void*>(std::uintptr_t{0x99});
  for (int i = 0; i < 6; ++i) {
    world.ask();
    world.deliver();
    world.stream = first;
    world.queue(5 * kMilli);
    world.mark([](PhaseMachine& m, std::uint64_t at) { m.backward_enter(at); });
    world.stream = second;
    world.queue(kMilli);
    world.mark([](PhaseMachine& m, std::uint64_t at) { m.backward_leave(at); });
    world.stream = i % 2 == 0 ? first : second;
    world.optimize(kMilli);
  }
  world.pass(100 * kMilli);
  const auto found = world.poll();
  if (!CHECK(found.size() == 5)) return;
  for (const paceline_step_record& record : found) {
    CHECK_EQ(sum(record), record.device_window_ns);
    for (const std::uint64_t time : record.device_ns) CHECK(time < 50 * kMilli);
  }
}

CASE(accumulated_micro_batches_are_each_measured) {
  TimelineWorld world;
  world.step();
  for (int i = 0; i < 4; ++i) {
    world.ask();
    world.deliver();
    world.queue(2 * kMilli);
    world.backward(3 * kMilli, 0);
  }
  world.optimize(kMilli);
  world.ask();
  world.wait();
  const auto found = world.poll();
  if (!CHECK(found.size() == 2U)) return;
  CHECK(near(found[1].device_ns[PACELINE_PHASE_FORWARD], 8 * kMilli));
  CHECK(near(found[1].device_ns[PACELINE_PHASE_BACKWARD], 12 * kMilli));
  CHECK(near(found[1].device_ns[PACELINE_PHASE_OPTIMIZER], kMilli));
  CHECK_EQ(found[1].flags, 0U);
}

CASE(a_step_of_more_boundaries_than_events_says_so) {
  TimelineWorld world;
  world.step();
  for (int i = 0; i < 40; ++i) {
    world.ask();
    world.deliver();
    world.queue(kMilli);
    world.backward(kMilli, 0);
  }
  world.optimize(kMilli);
  world.ask();
  world.wait();
  const auto found = world.poll();
  if (!CHECK(found.size() == 2U)) return;
  CHECK_EQ(found[1].flags, PACELINE_FLAG_TRUNCATED_POOL);
  CHECK(found[1].device_ns[PACELINE_PHASE_UNATTRIBUTED] > 40 * kMilli);
  CHECK_EQ(sum(found[1]), found[1].device_window_ns);
}

CASE(two_optimizers_of_one_iteration_are_one_step_of_the_device) {
  TimelineWorld world;
  for (int i = 0; i < 3; ++i) {
    world.ask();
    world.deliver();
    for (const std::uint32_t optimizer : {0U, 1U}) {
      world.queue(kMilli);
      world.backward(2 * kMilli, 0);
      world.optimize(kMilli, optimizer);
    }
  }
  world.ask();
  world.wait();
  const auto found = world.poll();
  if (!CHECK(found.size() == 3U)) return;
  CHECK(near(found[2].device_window_ns, 8 * kMilli));
  CHECK(near(found[2].device_ns[PACELINE_PHASE_OPTIMIZER], 2 * kMilli));
}

CASE(a_loop_without_a_loader_is_measured_by_its_marks) {
  TimelineWorld world;
  for (int i = 0; i < 4; ++i) {
    world.queue(kMilli);
    world.backward(2 * kMilli, 0);
    world.optimize(kMilli);
  }
  world.wait();
  const auto found = world.poll();
  // A step is over when its optimizer runs again.
  if (!CHECK(found.size() == 3U)) return;
  CHECK(near(found[2].device_window_ns, 4 * kMilli));
  CHECK(near(found[2].device_ns[PACELINE_PHASE_BACKWARD], 2 * kMilli));
}

CASE(explicit_steps_are_measured) {
  TimelineWorld world;
  for (int i = 0; i < 4; ++i) {
    world.mark([](PhaseMachine& m, std::uint64_t at) { m.step(at, -1); });
    world.queue(5 * kMilli);
  }
  world.wait();
  const auto found = world.poll();
  if (!CHECK(found.size() == 3U)) return;
  CHECK_EQ(found[2].step, 3U);
  CHECK(near(found[2].device_window_ns, 5 * kMilli));
}

CASE(a_new_ring_and_a_pause_begin_with_nothing_recorded) {
  TimelineWorld world;
  world.step();
  world.step();
  world.timeline.begin(2);
  world.step();
  world.step();
  world.mark([](PhaseMachine& m, std::uint64_t at) { m.restart(at); });
  world.step();
  world.step();
  world.step();
  world.wait();
  for (const paceline_step_record& record : world.poll())
    CHECK(record.ring_epoch == 1 || record.step > 2);
}

CASE(the_phase_of_an_interval_is_what_the_host_was_in) {
  using paceline::trace::device_phase;
  const auto of = [](std::initializer_list<int> phases) {
    std::uint16_t mask = 0;
    for (const int phase : phases) mask = static_cast<std::uint16_t>(mask | 1U << phase);
    return static_cast<int>(device_phase(mask));
  };
  CHECK_EQ(of({}), PACELINE_PHASE_OTHER);
  CHECK_EQ(of({PACELINE_PHASE_OTHER}), PACELINE_PHASE_OTHER);
  CHECK_EQ(of({PACELINE_PHASE_OTHER, PACELINE_PHASE_CHECKPOINT}), PACELINE_PHASE_CHECKPOINT);
  CHECK_EQ(of({PACELINE_PHASE_FORWARD, PACELINE_PHASE_BACKWARD}), PACELINE_PHASE_COMPUTE_UNDIVIDED);
  CHECK_EQ(of({PACELINE_PHASE_EVALUATION, PACELINE_PHASE_CHECKPOINT}), PACELINE_PHASE_UNATTRIBUTED);
  CHECK_EQ(of({PACELINE_PHASE_FORWARD, PACELINE_PHASE_DATA_WAIT}), PACELINE_PHASE_UNATTRIBUTED);
}

}  // namespace timeline_cases
