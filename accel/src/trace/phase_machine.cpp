// SPDX-License-Identifier: Apache-2.0
#include "phase_machine.hpp"

#include <algorithm>
#include <utility>

#include "clamp.hpp"

namespace paceline::trace {

PhaseMachine::PhaseMachine(StepSink& sink, std::uint32_t host_phases, std::uint32_t mark_cost_ns)
    : sink_(sink), host_phases_(host_phases), mark_cost_ns_(mark_cost_ns) {}

void PhaseMachine::advance(std::uint64_t now) {
  if (!started_) {
    started_ = true;
    last_ns_ = window_.start_ns = now;
  }
  // If the clock went back, the unsigned difference would be huge.
  const std::uint64_t elapsed = now > last_ns_ ? now - last_ns_ : 0;
  if (depth_ > 0) {
    window_.host_ns[stack_[depth_ - 1]] += elapsed;
    phases_seen_ |= static_cast<std::uint16_t>(1U << stack_[depth_ - 1]);
  } else {
    pending_ns_ += elapsed;
  }
  last_ns_ += elapsed;
  live_since_ = last_ns_;
  ++window_.marks;
}

void PhaseMachine::resolve(std::uint32_t phase) {
  window_.host_ns[phase] += pending_ns_;
  if (pending_ns_ > 0) phases_seen_ |= static_cast<std::uint16_t>(1U << phase);
  pending_ns_ = 0;
}

// The host has left the phases that it was in since the last boundary. Call it when their names
// are resolved.
void PhaseMachine::boundary() {
  device_mark_.boundary = true;
  device_mark_.phases = std::exchange(phases_seen_, std::uint16_t{0});
}

bool PhaseMachine::push(std::uint32_t phase) {
  if (depth_ == kMaxDepth) return false;
  stack_[depth_++] = static_cast<std::uint8_t>(phase);
  return true;
}

bool PhaseMachine::pop(std::uint32_t phase) {
  for (int i = depth_ - 1; i >= 0; --i) {
    if (stack_[i] == phase) {
      depth_ = i;
      return true;
    }
  }
  return false;
}

bool PhaseMachine::inside(std::uint32_t phase) const {
  return std::find(stack_.begin(), stack_.begin() + depth_, phase) != stack_.begin() + depth_;
}

std::uint32_t PhaseMachine::live_phase() const {
  if (depth_ > 0) return stack_[depth_ - 1];
  switch (after_) {
    case After::kStart: return PACELINE_PHASE_UNATTRIBUTED;
    case After::kBatch: return PACELINE_PHASE_FORWARD;
    case After::kBackward:
    case After::kStepEnd: return PACELINE_PHASE_OTHER;
    case After::kEvaluation: return PACELINE_PHASE_EVALUATION;
  }
  return PACELINE_PHASE_UNATTRIBUTED;
}

bool PhaseMachine::enter(std::uint64_t now, std::uint32_t phase) {
  advance(now);
  return push(phase);
}

bool PhaseMachine::leave(std::uint64_t now, std::uint32_t phase) {
  advance(now);
  return pop(phase);
}

PhaseMachine::Loader& PhaseMachine::loader_of(std::uint64_t id) {
  for (int i = 0; i < loader_count_; ++i) {
    if (loaders_[i].id == id) return loaders_[i];
  }
  const int slot = loader_count_ < kMaxLoaders ? loader_count_++ : loader_next_++ % kMaxLoaders;
  loaders_[slot] = {id, LoaderKind::kUnknown, false};
  return loaders_[slot];
}

bool PhaseMachine::training_known() const {
  return std::any_of(loaders_.begin(), loaders_.begin() + loader_count_,
                     [](const Loader& loader) { return loader.kind == LoaderKind::kTraining; });
}

void PhaseMachine::resolve_before_loader() {
  switch (after_) {
    case After::kStart: resolve(PACELINE_PHASE_UNATTRIBUTED); break;
    case After::kEvaluation: resolve(PACELINE_PHASE_EVALUATION); break;
    case After::kBatch:  // the program skipped a batch
    case After::kBackward:
    case After::kStepEnd: resolve(PACELINE_PHASE_OTHER); break;
  }
}

bool PhaseMachine::loader_enter(std::uint64_t now, std::uint64_t id, bool gradients) {
  advance(now);
  if (depth_ > 0)
    return push(inside(PACELINE_PHASE_EVALUATION) ? PACELINE_PHASE_EVALUATION
                                                  : PACELINE_PHASE_DATA_WAIT);
  Loader& loader = loader_of(id);
  // If a loader that is not the training one delivers a second batch without a backward in between,
  // it evaluates with gradients on.
  if (loader.kind == LoaderKind::kUnknown && loader.pending && training_known()) {
    loader.kind = LoaderKind::kEvaluation;
    if (after_ == After::kBatch) after_ = After::kEvaluation;
  }
  resolve_before_loader();
  const bool evaluation = !gradients || loader.kind == LoaderKind::kEvaluation;
  if (has_candidate_ && (evaluation || !candidate_.has_loader || candidate_.loader == id)) commit();
  if (evaluation) {
    after_ = After::kEvaluation;
    evaluation_gradients_ = gradients;
    return push(PACELINE_PHASE_EVALUATION);
  }
  loader_entered_ns_ = now;
  boundary();
  return push(PACELINE_PHASE_DATA_WAIT);
}

bool PhaseMachine::loader_leave(std::uint64_t now, std::uint64_t id, std::int64_t samples) {
  advance(now);
  if (depth_ == 0) return false;
  const std::uint8_t phase = stack_[depth_ - 1];
  if (phase != PACELINE_PHASE_DATA_WAIT && phase != PACELINE_PHASE_EVALUATION) return false;
  --depth_;
  if (depth_ > 0) return true;
  const bool delivered = samples != -2;
  if (phase == PACELINE_PHASE_EVALUATION) {
    loader_of(id).pending = delivered && evaluation_gradients_;
    after_ = delivered ? After::kEvaluation : After::kStepEnd;
    return true;
  }
  boundary();
  if (!delivered) {
    loader_of(id).pending = false;
    loader_open_ = false;
    after_ = After::kStepEnd;
    return true;
  }
  loader_of(id).pending = true;
  loader_open_ = true;
  after_ = After::kBatch;
  window_.loader_wait_max_us = std::max(window_.loader_wait_max_us,
                                        clamp_to<std::uint32_t>((now - loader_entered_ns_) / 1000));
  // If one iteration asks several loaders, only the first one counts batches and samples.
  if (!window_.has_loader) {
    window_.has_loader = true;
    window_.loader = id;
  }
  if (window_.loader == id) {
    ++window_.batches;
    if (samples < 0)
      window_.samples_unknown = true;
    else
      window_.samples += static_cast<std::uint64_t>(samples);
  }
  return true;
}

bool PhaseMachine::backward_enter(std::uint64_t now) {
  advance(now);
  if (depth_ == 0) {
    switch (after_) {
      case After::kStart: resolve(PACELINE_PHASE_UNATTRIBUTED); break;
      case After::kEvaluation: {
        const bool promoted = std::any_of(
            loaders_.begin(), loaders_.begin() + loader_count_, [](const Loader& loader) {
              return loader.kind == LoaderKind::kEvaluation && loader.pending;
            });
        resolve(promoted ? PACELINE_PHASE_FORWARD : PACELINE_PHASE_EVALUATION);
        break;
      }
      case After::kBatch:
      case After::kBackward: resolve(PACELINE_PHASE_FORWARD); break;
      // With a loader, this is a second forward on the same batch. Without one, fetching and
      // forward cannot be told apart.
      case After::kStepEnd:
        resolve(loader_open_ ? PACELINE_PHASE_FORWARD : PACELINE_PHASE_UNATTRIBUTED);
        break;
    }
    for (int i = 0; i < loader_count_; ++i) {
      if (loaders_[i].pending) loaders_[i].kind = LoaderKind::kTraining;
      loaders_[i].pending = false;
    }
    ++window_.backwards;
    boundary();
  }
  return push(PACELINE_PHASE_BACKWARD);
}

bool PhaseMachine::gradients_done(std::uint64_t now) {
  if (depth_ == 0 || stack_[depth_ - 1] != PACELINE_PHASE_BACKWARD) return false;
  advance(now);
  if (depth_ == 1) boundary();
  return push(PACELINE_PHASE_COMM_EXPOSED);
}

bool PhaseMachine::backward_leave(std::uint64_t now) {
  advance(now);
  const bool matched = pop(PACELINE_PHASE_BACKWARD);
  if (matched && depth_ == 0) {
    after_ = After::kBackward;
    boundary();
  }
  return matched;
}

bool PhaseMachine::optimizer_enter(std::uint64_t now, std::uint32_t optimizer) {
  advance(now);
  if (depth_ == 0) {
    switch (after_) {
      case After::kStart: resolve(PACELINE_PHASE_UNATTRIBUTED); break;
      case After::kBatch: resolve(PACELINE_PHASE_FORWARD); break;
      case After::kEvaluation: resolve(PACELINE_PHASE_EVALUATION); break;
      case After::kBackward:
      case After::kStepEnd: resolve(PACELINE_PHASE_OTHER); break;
    }
    const auto bit = static_cast<std::uint16_t>(1U << std::min<std::uint32_t>(optimizer, 15));
    if (has_candidate_ && (candidate_.optimizer_mask & bit) != 0) commit();
    boundary();
  }
  return push(PACELINE_PHASE_OPTIMIZER);
}

bool PhaseMachine::optimizer_leave(std::uint64_t now, std::uint32_t optimizer) {
  advance(now);
  if (!pop(PACELINE_PHASE_OPTIMIZER)) return false;
  if (depth_ > 0) return true;
  // There is pending time only if the optimizer was entered inside another phase.
  resolve(PACELINE_PHASE_UNATTRIBUTED);
  optimizers_seen_ = true;
  const auto bit = static_cast<std::uint16_t>(1U << std::min<std::uint32_t>(optimizer, 15));
  window_.optimizer_mask |= bit;
  // A skipped optimizer ends its step, too: the iteration took place, only the update did not.
  if (std::exchange(skip_told_, false)) {
    window_.scaler_skip = true;
  } else {
    window_.stepped_mask |= bit;
    ++window_.optimizers_stepped;
  }
  window_.end_ns = last_ns_;
  boundary();
  device_mark_.end = true;
  if (has_candidate_) {
    merge(candidate_, window_);
  } else {
    candidate_ = window_;
    has_candidate_ = true;
  }
  window_ = Window{};
  window_.start_ns = last_ns_;
  after_ = After::kStepEnd;
  return true;
}

void PhaseMachine::commit() {
  if (!has_candidate_) return;
  has_candidate_ = false;
  device_mark_.commit_before = step_;
  emit(candidate_, PACELINE_BOUNDARY_OPTIMIZER, 0);
}

void PhaseMachine::step(std::uint64_t now, std::int64_t user_step) {
  const bool first = !started_;
  advance(now);
  if (first) {  // this boundary begins the first step
    boundary();
    return;
  }
  if (optimizers_seen_) {
    // Loops call this after the optimizer and before the next batch. So the number belongs to the
    // step that just ended.
    (has_candidate_ && depth_ == 0 ? candidate_ : window_).user_step = user_step;
    return;
  }
  resolve(depth_ == 0 ? live_phase() : std::uint32_t{PACELINE_PHASE_UNATTRIBUTED});
  window_.user_step = user_step;
  window_.end_ns = last_ns_;
  boundary();
  device_mark_.end = true;
  device_mark_.commit_after = step_;
  emit(window_, PACELINE_BOUNDARY_EXPLICIT, 0);
  window_ = Window{};
  window_.start_ns = last_ns_;
}

void PhaseMachine::count(std::uint32_t counter, std::uint64_t amount) {
  switch (counter) {
    case 0:
      samples_told_ = true;
      window_.told_samples += amount;
      break;
    case 1:
      tokens_told_ = true;
      window_.tokens += amount;
      break;
    case 2:
      h2d_told_ = true;
      window_.h2d_bytes += amount;
      break;
    case 4:
      batch_tokens_told_ = true;
      window_.batch_tokens += amount;
      break;
    default: skip_told_ = amount > 0 && inside(PACELINE_PHASE_OPTIMIZER); break;
  }
}

void PhaseMachine::finish(std::uint64_t now) {
  if (!started_) return;
  advance(now);
  resolve_before_loader();
  commit();
  window_.end_ns = last_ns_;
  if (window_.end_ns > window_.start_ns) {
    emit(window_, optimizers_seen_ ? PACELINE_BOUNDARY_OPTIMIZER : PACELINE_BOUNDARY_EXPLICIT,
         PACELINE_FLAG_FINAL);
  }
  window_ = Window{};
  window_.start_ns = last_ns_;
}

void PhaseMachine::drop_open(std::uint64_t now) {
  if (!started_) return;
  advance(now);
  depth_ = 0;
  skip_told_ = false;
}

void PhaseMachine::restart(std::uint64_t now) {
  commit();
  device_mark_.discard = true;
  phases_seen_ = 0;
  window_ = Window{};
  window_.start_ns = last_ns_ = live_since_ = now;
  pending_ns_ = 0;
  depth_ = 0;
  skip_told_ = false;
  after_ = After::kStart;
}

}  // namespace paceline::trace
