// SPDX-License-Identifier: Apache-2.0
// The one trace of the process: ring, phase machine, publisher, and which thread's marks count. The
// C ABI (paceline.h) calls it.
//
// Owned by the process and never destroyed, because marks may come from threads that outlive main.
// Thread-safe: marks hold one mutex for tens of nanoseconds. Only open and close make system calls
// under it. Calls of a device's driver are made outside of it. fork() is safe: the mutex is taken
// around it and the child drops everything. Failure is a negative code of paceline.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/clock.hpp"
#include "device_timeline.hpp"
#include "identity.hpp"
#include "mark_log.hpp"
#include "paceline/paceline.h"
#include "paceline/sources.h"
#include "phase_machine.hpp"
#include "publisher.hpp"
#include "ring_writer.hpp"

namespace paceline::trace {

class Runtime {
 public:
  static Runtime& instance();

  int open(const paceline_options* options);
  int close();
  int ring_fd();
  int system_error() const { return system_error_; }
  int set_tracing(bool on);

  /// Measures the device's times by events from now on. Returns EORDER if no context of CUDA is
  /// current on this thread yet, and EDEVICE and a reason if the driver refuses.
  int start_device(std::uint32_t stream_cost_ns, std::string& why);
  /// The stream that this thread computes on, for its next mark.
  static void set_stream(std::uint64_t stream);

  struct Step {
    std::uint32_t ring_epoch = 0;
    std::uint64_t number = 0;
  };
  /// The step that the marks are in now: number 0 before the first mark, and ring epoch 0 if no
  /// ring is open. Lock-free. Work between
  /// two optimizers of one iteration counts for the next step, because only the second optimizer
  /// tells that both belong together.
  Step current_step() const {
    const std::uint64_t both = current_step_.load(std::memory_order_acquire);
    return {static_cast<std::uint32_t>(both >> kStepBits), both & ((1ULL << kStepBits) - 1)};
  }
  /// Adds facts to a step: those fields of `facts` whose bit of `valid` is set. The caller fills
  /// `step` and `ring_epoch`, as current_step() returned them. Any thread may call; it waits for no
  /// system call except during close(). ECLOSED if that ring is not open any more.
  int amend(const paceline_step_record& facts);
  /// Puts the state of a communicator into the live state of the ring.
  int set_collective(const paceline_collective& collective);
  /// Adds capability bits to the header of the ring.
  int announce(std::uint64_t capabilities);

  /// Copies the newest marks of this ring, and returns how many.
  int recent_marks(paceline_mark* marks, std::uint32_t most);

  // The kind of a mark decides what happens if its thread is not the training thread.
  enum class Claim : std::uint8_t {
    kData,  // a loader's mark: counts on the training thread, or on any thread while there is none
    // A mark of backward or an optimizer: makes its thread the training thread, unless another
    // thread is inside a phase.
    kTraining,
    kAny  // any thread's mark counts
  };

  /// Runs `act(machine, now)` under the lock if the mark counts. `act` returns whether the machine
  /// understood the mark.
  template <typename Act>
  int mark(Claim claim, Act&& act) {
    if (state_.load(std::memory_order_acquire) != State::kOpen) return refusal();
    bool understood = false;
    DeviceMark device;
    std::uint64_t now = 0;
    {
      const std::lock_guard lock(mutex_);
      if (!machine_) return refusal();
      if (!tracing_) return PACELINE_OK;
      if (!counts(claim)) return PACELINE_ETHREAD;
      now = base::monotonic_ns();
      machine_->add_overhead(timeline_.take_cost());
      understood = act(*machine_, now);
      ring_->set_live(machine_->live_phase(), machine_->live_since(), machine_->live_step());
      set_current_step(machine_->started() ? machine_->live_step() : 0);
      marks_.add(machine_->live_since(), machine_->live_phase());
      device = machine_->take_device_mark();
    }
    // Outside the lock: a driver call may wait for the device, and what the device waits for may
    // need `amend`, which takes the lock.
    if (timeline_.measures()) timeline_.apply(device, now, take_stream());
    return understood ? PACELINE_OK : PACELINE_EORDER;
  }

 private:
  enum class State : std::uint8_t { kClosed, kOpen, kForked, kDisabled };

  static constexpr unsigned kStepBits = 48;

  Runtime();
  void set_current_step(std::uint64_t number) {
    current_step_.store(std::uint64_t{epoch_} << kStepBits | number, std::memory_order_release);
  }
  int refusal() const;
  bool counts(Claim claim);
  /// The stream that was set for this mark.
  static std::optional<cuda::Stream> take_stream();
  void tell_device();
  void forked();

  std::atomic<State> state_{State::kClosed};
  std::mutex mutex_;
  DeviceTimeline timeline_;
  std::unique_ptr<RingWriter> ring_;
  std::unique_ptr<Publisher> publisher_;
  std::unique_ptr<PhaseMachine> machine_;
  MarkLog marks_;
  const void* owner_ = nullptr;  // the training thread
  bool owner_trains_ = false;    // it was in backward or an optimizer, not only at a loader
  bool tracing_ = true;
  std::uint32_t epoch_ = 0;
  std::atomic<std::uint64_t> current_step_{0};  // the epoch above kStepBits bits of the number
  std::atomic<int> system_error_{0};
};

}  // namespace paceline::trace
