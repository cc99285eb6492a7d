// SPDX-License-Identifier: Apache-2.0
// The time that the device spends between the marks of the host, by CUDA events: one event at each
// boundary of phases, recorded on the stream that the program computes on. An event is complete
// when all earlier work of its stream is, so the time between two events is the device's time for
// what was queued between the marks, with its gaps. The device never waits for it, and the host
// never waits for the device.
//
// Ownership: lives as long as the process; the events stay, because the driver may be gone before
// this library is. Threads: `start` and `apply` may be called by any thread (a mutex orders them);
// one other thread at a time calls `poll`. They share no lock: `apply` may wait inside the driver
// when the device is far behind, and the polling thread must not wait with it.
//
// Failure: without an event a boundary is skipped, and its interval grows into the next one. That
// happens while the stream is captured into a graph, in another context, without a free event, or
// if a mark has no stream. An error of the driver ends the measurement for good (`lost`).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <expected>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "cuda/driver.hpp"
#include "phase_machine.hpp"

namespace paceline::trace {

/// The device phase of an interval in which the host was in `phases` (a bit each). User code
/// between two marks counts for the phase that it is merged with. COMPUTE_UNDIVIDED for several
/// phases that compute, UNATTRIBUTED for any other mixture.
std::uint32_t device_phase(std::uint16_t phases);

class DeviceTimeline {
 public:
  struct Device {
    int index = -1;  // among the devices that the process sees
    std::string pci_address;
  };

  /// Measures from now on, on the context that is current on this thread. nullopt if there is none
  /// yet. An Error text if the driver refuses. A second call returns the same device.
  /// `stream_cost_ns` is what it costs the caller to know the stream of a mark.
  std::expected<std::optional<Device>, std::string> start(const cuda::Driver& driver,
                                                          std::uint32_t stream_cost_ns);
  bool measures() const { return state_.load(std::memory_order_acquire) == State::kMeasuring; }
  /// The driver has refused a call: its context is gone, or broken.
  bool lost() const { return state_.load(std::memory_order_acquire) == State::kLost; }
  std::optional<Device> device() const;

  /// A new ring: what was recorded for the last one belongs to no step.
  void begin(std::uint32_t ring_epoch);
  /// Acts on a mark of the host. `now` is the time of the mark. `stream` is the one that the thread
  /// computes on, nullopt if it is not known.
  void apply(const DeviceMark& mark, std::uint64_t now, std::optional<cuda::Stream> stream);
  /// What the measurement has cost the training thread since the last call, in ns.
  std::uint64_t take_cost() {
    return measures() ? cost_ns_.exchange(0, std::memory_order_relaxed) : 0;
  }
  /// Passes on the amendments of the steps that the device has finished.
  void poll(const std::function<void(const paceline_step_record&)>& take);

 private:
  enum class State : std::uint8_t { kOff, kMeasuring, kLost };

  static constexpr std::uint32_t kEvents = 1024;
  static constexpr std::uint32_t kMarks = 64;  // events of one step
  static constexpr std::uint32_t kFlights = 64;
  // An event that takes longer has waited for room in the queue of the device.
  static constexpr std::uint64_t kLongestRecord = 20'000;
  // The lag of the device behind the host may change by this part of a step while the device
  // counts as following the host.
  static constexpr std::uint64_t kLagPart = 20;

  struct Event {
    cuda::Event handle = nullptr;
    std::atomic<std::uint8_t> users{0};
  };
  struct Mark {
    Event* event = nullptr;
    std::uint16_t phases = 0;  // of the interval that ends here
    std::uint64_t host_ns = 0;
  };
  /// A step whose events the device may not have reached. The first event is its start.
  struct Flight {
    std::uint64_t step = 0;
    std::uint32_t ring_epoch = 0;
    std::uint32_t count = 0;
    std::uint32_t reached = 0;
    bool truncated = false;
    bool kept_up = false;  // the device had done all but the last interval when it was ended
    std::array<Mark, kMarks> marks;
  };

  bool record(std::uint64_t now, cuda::Stream stream, bool end);
  Event* free_event();
  void commit(std::uint64_t step);
  void discard();
  void drop(std::uint32_t count);
  bool reached(Flight& flight);
  std::optional<paceline_step_record> facts(const Flight& flight) const;
  void lose();

  std::atomic<State> state_{State::kOff};
  std::atomic<std::uint64_t> cost_ns_{0};
  std::uint32_t stream_cost_ns_ = 0;
  const cuda::Driver* driver_ = nullptr;  // this and the context are set before state_
  cuda::Context context_ = nullptr;
  mutable std::mutex mutex_;  // of what follows, to the flights
  std::optional<Device> device_;
  std::array<Event, kEvents> events_;
  std::uint32_t created_ = 0;
  std::uint32_t next_event_ = 0;
  std::uint32_t ring_epoch_ = 0;
  // Boundaries of the candidate step, and of the one after it.
  std::array<Mark, kMarks> marks_;
  std::uint32_t count_ = 0;
  std::uint32_t candidate_ = 0;  // marks of the candidate step; 0: it has no end
  bool truncated_ = false;
  bool kept_up_ = false;
  std::uint16_t skipped_phases_ = 0;  // of boundaries without an event
  // Written by `apply`, read by `poll`.
  std::unique_ptr<std::array<Flight, kFlights>> flights_;
  std::atomic<std::uint32_t> head_{0};
  std::atomic<std::uint32_t> tail_{0};
};

}  // namespace paceline::trace
