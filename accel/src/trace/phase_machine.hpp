// SPDX-License-Identifier: Apache-2.0
// Turns the marks of one rank into steps. The wall time of a step is partitioned exactly: every
// nanosecond belongs to one phase.
//
// Time inside a mark counts as the innermost phase entered. Time between marks stays pending until
// the next mark tells what it was. From a delivered batch to the entry of backward it is forward;
// from the end of a step to the next batch it is other. If the order of marks tells nothing, the
// time is unattributed.
//
// A step ends when the last optimizer of its iteration is left. That is known only at the next
// batch, or when an optimizer of the step runs again. Until then the step is held as a candidate.
// So the two optimizers of a GAN make one step, and evaluation and checkpoints belong to the step
// after them.
//
// Owned by Runtime. Not thread-safe. Callers pass the time; nothing is allocated after
// construction. Nothing fails: a leave without its enter is counted and otherwise ignored.
#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "paceline/step_record.h"

namespace paceline::trace {

class StepSink {
 public:
  virtual ~StepSink() = default;
  /// Takes a finished step. Must not block.
  virtual void take(const paceline_step_record& record) = 0;
};

/// What one mark means for the timeline of the device, in this order. The timeline acts on it
/// outside the lock of the marks, because a driver call may wait for the device.
struct DeviceMark {
  std::uint64_t commit_before = 0;  // the candidate became this step; 0: it did not
  bool boundary = false;            // an interval ends here, in which the host was in `phases`
  bool end = false;                 // the interval is the last one of an optimizer's step
  std::uint16_t phases = 0;         // a bit per phase
  std::uint64_t commit_after = 0;   // what was ended became this step; 0: it is a candidate
  bool discard = false;             // what was not committed belongs to no step
};

class PhaseMachine {
 public:
  PhaseMachine(StepSink& sink, std::uint32_t host_phases, std::uint32_t mark_cost_ns);

  bool enter(std::uint64_t now, std::uint32_t phase);
  bool leave(std::uint64_t now, std::uint32_t phase);
  bool loader_enter(std::uint64_t now, std::uint64_t loader, bool gradients);
  bool loader_leave(std::uint64_t now, std::uint64_t loader, std::int64_t samples);
  bool backward_enter(std::uint64_t now);
  bool gradients_done(std::uint64_t now);
  bool backward_leave(std::uint64_t now);
  bool optimizer_enter(std::uint64_t now, std::uint32_t optimizer);
  bool optimizer_leave(std::uint64_t now, std::uint32_t optimizer);
  void step(std::uint64_t now, std::int64_t user_step);
  void count(std::uint32_t counter, std::uint64_t amount);
  /// Tracing cost this much besides the marks.
  void add_overhead(std::uint64_t ns) { window_.overhead_ns += ns; }
  /// Hands out the last step and the time after it.
  void finish(std::uint64_t now);
  /// Forgets the time since the last mark and all open phases, because tracing was off for a while.
  void restart(std::uint64_t now);

  /// Forgets the open phases. Another thread trains from now on, and the leaves of the previous
  /// thread will not arrive.
  void drop_open(std::uint64_t now);

  /// Returns what the marks since the last call mean for the device's timeline. Call it after each
  /// mark.
  DeviceMark take_device_mark() { return std::exchange(device_mark_, {}); }

  /// Whether no phase is entered.
  bool idle() const { return depth_ == 0; }
  bool inside(std::uint32_t phase) const;
  /// The current phase, as far as it is known before the next mark.
  std::uint32_t live_phase() const;
  std::uint64_t live_since() const { return live_since_; }
  std::uint64_t live_step() const { return step_ + (has_candidate_ ? 1 : 0); }
  /// Whether there was a mark. What the program does before the first one belongs to no step.
  bool started() const { return started_; }

 private:
  // The event that the time between marks follows.
  enum class After : std::uint8_t { kStart, kBatch, kBackward, kStepEnd, kEvaluation };
  enum class LoaderKind : std::uint8_t { kUnknown, kTraining, kEvaluation };

  struct Loader {
    std::uint64_t id;
    LoaderKind kind;
    bool pending;  // delivered a batch without a backward since
  };

  struct Window {
    std::uint64_t start_ns = 0;
    std::uint64_t end_ns = 0;
    std::array<std::uint64_t, PACELINE_PHASE_COUNT> host_ns{};
    std::uint64_t loader = 0;
    std::uint64_t samples = 0;
    std::uint64_t told_samples = 0;
    std::uint64_t tokens = 0;
    std::uint64_t batch_tokens = 0;
    std::uint64_t h2d_bytes = 0;
    std::uint64_t overhead_ns = 0;  // without the marks
    std::int64_t user_step = -1;
    std::uint32_t batches = 0;
    std::uint32_t backwards = 0;
    std::uint32_t optimizers_stepped = 0;
    std::uint32_t loader_wait_max_us = 0;
    std::uint32_t marks = 0;
    std::uint16_t optimizer_mask = 0;  // optimizers that were asked to step
    std::uint16_t stepped_mask = 0;    // those of them that no gradient scaler skipped
    bool scaler_skip = false;
    bool has_loader = false;
    bool samples_unknown = false;
  };

  static constexpr int kMaxDepth = 16;
  static constexpr int kMaxLoaders = 32;

  void advance(std::uint64_t now);
  void resolve(std::uint32_t phase);
  void resolve_before_loader();
  void boundary();
  bool push(std::uint32_t phase);
  bool pop(std::uint32_t phase);
  Loader& loader_of(std::uint64_t id);
  bool training_known() const;
  void merge(Window& into, const Window& from) const;
  void commit();
  void emit(const Window& window, std::uint8_t boundary, std::uint64_t flags);

  StepSink& sink_;
  std::uint32_t host_phases_;
  std::uint32_t mark_cost_ns_;
  std::uint64_t last_ns_ = 0;
  std::uint64_t live_since_ = 0;
  std::uint64_t pending_ns_ = 0;
  std::uint64_t loader_entered_ns_ = 0;
  std::uint64_t step_ = 1;  // number of the candidate if there is one, else of window_
  Window window_;
  Window candidate_;
  bool has_candidate_ = false;
  bool started_ = false;
  bool skip_told_ = false;    // the scaler skipped the optimizer that is entered
  bool loader_open_ = false;  // a training loader delivered a batch and is not exhausted
  // The current evaluation loader was asked with gradients on.
  bool evaluation_gradients_ = false;
  bool optimizers_seen_ = false;
  bool samples_told_ = false;
  bool tokens_told_ = false;
  bool batch_tokens_told_ = false;
  bool h2d_told_ = false;
  After after_ = After::kStart;
  std::array<std::uint8_t, kMaxDepth> stack_{};
  int depth_ = 0;
  DeviceMark device_mark_;
  std::uint16_t phases_seen_ = 0;  // phases of the host since the last boundary
  std::array<Loader, kMaxLoaders> loaders_{};
  int loader_count_ = 0;
  int loader_next_ = 0;  // the slot to reuse when all are taken
};

}  // namespace paceline::trace
