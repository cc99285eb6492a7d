// SPDX-License-Identifier: Apache-2.0
// The device's times where the driver or the program lets no event be recorded or read.
#include <cstdint>
#include <vector>

#include "check.hpp"
#include "timeline_world.hpp"

namespace timeline_cases {

CASE(nothing_is_recorded_while_a_graph_is_captured) {
  TimelineWorld world;
  world.step();
  world.cuda.set("capturing", 1);
  const int before = world.cuda.calls("cuEventRecord");
  world.step();
  CHECK_EQ(world.cuda.calls("cuEventRecord"), before);
  world.cuda.set("capturing", 0);
  for (int i = 0; i < 4; ++i) world.step();
  world.wait();
  const auto found = world.poll();
  std::vector<std::uint64_t> numbers;
  for (const paceline_step_record& record : found) numbers.push_back(record.step);
  // The second has no end, and so the third has no start: it begins with its first boundary.
  CHECK(numbers == (std::vector<std::uint64_t>{1, 3, 4, 5}));
}

CASE(a_capture_inside_a_step_leaves_its_phases_together) {
  TimelineWorld world;
  world.step();
  world.ask();
  world.pass(kMilli);
  world.deliver();
  world.queue(kMilli);
  world.cuda.set("capturing", 1);
  world.backward(2 * kMilli, 0);
  world.cuda.set("capturing", 0);
  world.optimize(kMilli);
  world.ask();
  world.wait();
  const auto found = world.poll();
  if (!CHECK(found.size() == 2U)) return;
  // From the batch to the optimizer's begin: forward, backward, and other between them.
  CHECK(found[1].device_ns[PACELINE_PHASE_COMPUTE_UNDIVIDED] > 2 * kMilli);
  CHECK_EQ(found[1].device_ns[PACELINE_PHASE_FORWARD], 0U);
  CHECK_EQ(sum(found[1]), found[1].device_window_ns);
}

CASE(no_call_ends_a_capture_of_another_thread) {
  TimelineWorld world;
  world.cuda.set("captured elsewhere", 1);
  for (int i = 0; i < 5; ++i) world.step();
  world.wait();
  CHECK_EQ(world.poll().size(), 4U);
  CHECK_EQ(world.cuda.captures_broken(), 0);
  CHECK_EQ(world.cuda.capture_mode(), 0);
}

CASE(a_device_that_is_late_is_asked_again) {
  TimelineWorld world;
  for (int i = 0; i < 3; ++i) world.step({.load = 0, .forward = 50 * kMilli});
  CHECK(world.poll().empty());
  world.pass(60 * kMilli);
  CHECK_EQ(world.poll().size(), 1U);
  world.wait();
  CHECK_EQ(world.poll().size(), 1U);
}

CASE(a_device_that_never_answers_costs_a_bounded_number_of_events) {
  TimelineWorld world;
  world.cuda.set("never", 1);
  for (int i = 0; i < 1000; ++i) {
    world.step({.load = 0});
    if (i % 10 == 0) CHECK(world.poll().empty());
  }
  CHECK(world.cuda.events() <= 1024);
  CHECK(world.timeline.measures());
}

CASE(a_full_pool_skips_boundaries_and_recovers) {
  TimelineWorld world;
  world.cuda.set("pool", 20);
  for (int i = 0; i < 10; ++i) world.step();
  world.wait();
  const auto first = world.poll();
  CHECK(!first.empty() && first.size() < 9);
  for (int i = 0; i < 20; ++i) {
    world.step();
    world.wait();
    for (const paceline_step_record& record : world.poll())
      CHECK_EQ(sum(record), record.device_window_ns);
  }
  world.step();
  world.wait();
  CHECK_EQ(world.poll().size(), 1U);
  CHECK_EQ(world.cuda.events(), 20);
}

CASE(a_lost_context_ends_the_measurement) {
  for (const char* call : {"cuEventRecord", "cuEventQuery"}) {
    TimelineWorld world;
    world.step();
    world.step();
    world.wait();
    world.cuda.set(call, 700);
    world.poll();
    world.step();
    world.poll();
    CHECK(world.timeline.lost() && !world.timeline.measures());
    world.cuda.forget();
    world.step();
    CHECK(world.poll().empty());
    CHECK(world.cuda.log().empty());
    world.cuda.set(call, 0);
  }
}

CASE(marks_in_another_context_or_without_a_stream_have_no_event) {
  TimelineWorld world;
  world.step();
  world.cuda.push_context(3);
  const int before = world.cuda.calls("cuEventRecord");
  world.step();
  CHECK_EQ(world.cuda.calls("cuEventRecord"), before);
  world.cuda.pop_context();
  DeviceMark mark;
  mark.boundary = true;
  world.timeline.apply(mark, world.now, std::nullopt);
  CHECK_EQ(world.cuda.calls("cuEventRecord"), before);
  CHECK(world.timeline.measures());
}

CASE(a_device_is_named_once_a_context_is_current) {
  TimelineWorld world(false);
  const auto none = world.start();
  CHECK(none.has_value() && !none->has_value());
  world.step();
  CHECK_EQ(world.cuda.calls("cuEventCreate"), 0);
  world.cuda.push_context(2);
  const auto device = world.start();
  if (!CHECK(device.has_value() && device->has_value())) return;
  CHECK_EQ((*device)->index, 2);
  CHECK((*device)->pci_address == "0000:a2:00.0");
}

}  // namespace timeline_cases
