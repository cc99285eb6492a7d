// SPDX-License-Identifier: Apache-2.0
// The one trace of the process: ring, phase machine, publisher, and which thread's marks count. The
// C ABI (paceline.h) calls it.
//
// Owned by the process and never destroyed, because marks may come from threads that outlive main.
// Thread-safe: marks hold one mutex for tens of nanoseconds. Only open and close make system calls
// under it. fork() is safe: the mutex is taken around it and the child drops everything. Failure is
// a negative code of paceline.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "identity.hpp"
#include "paceline/paceline.h"
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
    const std::lock_guard lock(mutex_);
    if (!machine_) return refusal();
    if (!tracing_) return PACELINE_OK;
    if (!counts(claim)) return PACELINE_ETHREAD;
    const bool understood = act(*machine_, monotonic_ns());
    ring_->set_live(machine_->live_phase(), machine_->live_since(), machine_->live_step());
    return understood ? PACELINE_OK : PACELINE_EORDER;
  }

 private:
  enum class State : std::uint8_t { kClosed, kOpen, kForked, kDisabled };

  Runtime();
  int refusal() const;
  bool counts(Claim claim);
  void forked();

  std::atomic<State> state_{State::kClosed};
  std::mutex mutex_;
  std::unique_ptr<RingWriter> ring_;
  std::unique_ptr<Publisher> publisher_;
  std::unique_ptr<PhaseMachine> machine_;
  const void* owner_ = nullptr;  // the training thread
  bool owner_trains_ = false;    // it was in backward or an optimizer, not only at a loader
  bool tracing_ = true;
  std::uint32_t epoch_ = 0;
  std::atomic<int> system_error_{0};
};

}  // namespace paceline::trace
