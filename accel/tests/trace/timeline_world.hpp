// SPDX-License-Identifier: Apache-2.0
// A program that trains on the device of the fake driver: marks, and the work that it queues
// between them. Its time is the host's and the device's, and moves when the test says so. Each case
// has a process to itself.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "device_timeline.hpp"
#include "fake_cuda/fake.hpp"

namespace timeline_cases {

using paceline::device_test::FakeCuda;
using paceline::trace::DeviceMark;
using paceline::trace::DeviceTimeline;
using paceline::trace::PhaseMachine;

inline constexpr std::uint64_t kMicro = 1'000;
inline constexpr std::uint64_t kMilli = 1'000'000;
inline constexpr std::uint64_t kRounding = kMicro;  // the driver tells milliseconds as a float

struct Steps final : paceline::trace::StepSink {
  void take(const paceline_step_record& record) override { records.push_back(record); }
  std::vector<paceline_step_record> records;
};

inline std::uint64_t sum(const paceline_step_record& record) {
  return std::accumulate(std::begin(record.device_ns), std::end(record.device_ns),
                         std::uint64_t{0});
}

inline bool near(std::uint64_t a, std::uint64_t b) { return (a > b ? a - b : b - a) <= kRounding; }

struct TimelineWorld {
  auto start() { return timeline.start(**paceline::cuda::Driver::get(), 100); }

  explicit TimelineWorld(bool on_device = true) {
    if (!on_device) return;
    cuda.push_context(2);
    const auto device = start();
    if (!device || !*device) std::abort();
    timeline.begin(1);
  }

  void pass(std::uint64_t ns) {
    now += ns;
    cuda.advance(ns);
  }
  void queue(std::uint64_t ns) {
    busy_until = std::max(busy_until, now) + ns;
    cuda.work(stream, ns);
  }
  /// The host waits for the device.
  void wait() { pass(busy_until > now ? busy_until - now : 0); }

  template <typename Act>
  void mark(Act&& act) {
    act(machine, now);
    const DeviceMark mark = machine.take_device_mark();
    if (mark.boundary) boundaries.push_back({mark.phases, std::max(busy_until, now), mark.end});
    timeline.apply(mark, now, stream);
    pass(kMicro);
  }
  void ask() {
    mark([](PhaseMachine& m, std::uint64_t at) { m.loader_enter(at, 1, true); });
  }
  void deliver() {
    mark([](PhaseMachine& m, std::uint64_t at) { m.loader_leave(at, 1, 8); });
  }
  void backward(std::uint64_t ns, std::uint64_t comm) {
    mark([](PhaseMachine& m, std::uint64_t at) { m.backward_enter(at); });
    queue(ns);
    if (comm > 0) {
      mark([](PhaseMachine& m, std::uint64_t at) { m.gradients_done(at); });
      queue(comm);
    }
    mark([](PhaseMachine& m, std::uint64_t at) { m.backward_leave(at); });
  }
  void optimize(std::uint64_t ns, std::uint32_t number = 0) {
    mark([&](PhaseMachine& m, std::uint64_t at) { m.optimizer_enter(at, number); });
    queue(ns);
    mark([&](PhaseMachine& m, std::uint64_t at) { m.optimizer_leave(at, number); });
  }
  struct Work {
    std::uint64_t load = 10 * kMilli;  // of the host; the others are the device's
    std::uint64_t forward = 1 * kMilli;
    std::uint64_t backward = 2 * kMilli;
    std::uint64_t comm = 500 * kMicro;
    std::uint64_t optimizer = 3 * kMilli;
  };
  void step(const Work& work) {
    ask();
    pass(work.load);
    deliver();
    queue(work.forward);
    backward(work.backward, work.comm);
    optimize(work.optimizer);
  }
  void step() { step(Work{}); }

  std::vector<paceline_step_record> poll() {
    std::vector<paceline_step_record> found;
    timeline.poll([&](const paceline_step_record& record) { found.push_back(record); });
    return found;
  }

  struct Boundary {
    std::uint16_t phases;
    std::uint64_t device_ns;
    bool end;
  };

  FakeCuda cuda;
  Steps steps;
  PhaseMachine machine{steps, 0, 0};
  DeviceTimeline timeline;
  void* stream = reinterpret_cast<void*>(std::uintptr_t{0x77});
  std::uint64_t now = kMilli;
  std::uint64_t busy_until = 0;
  std::vector<Boundary> boundaries;
};

}  // namespace timeline_cases
