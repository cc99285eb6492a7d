// SPDX-License-Identifier: Apache-2.0
// How a window of training time becomes a step record.
#include <algorithm>

#include "clamp.hpp"
#include "phase_machine.hpp"

namespace paceline::trace {
void PhaseMachine::merge(Window& into, const Window& from) const {
  into.end_ns = from.end_ns;
  for (int i = 0; i < PACELINE_PHASE_COUNT; ++i) into.host_ns[i] += from.host_ns[i];
  if (!into.has_loader || (from.has_loader && into.loader == from.loader)) {
    into.has_loader = from.has_loader;
    into.loader = from.loader;
    into.samples += from.samples;
    into.batches += from.batches;
    into.samples_unknown = into.samples_unknown || from.samples_unknown;
  }
  into.told_samples += from.told_samples;
  into.tokens += from.tokens;
  into.batch_tokens += from.batch_tokens;
  into.h2d_bytes += from.h2d_bytes;
  into.overhead_ns += from.overhead_ns;
  into.backwards += from.backwards;
  into.optimizers_stepped += from.optimizers_stepped;
  into.loader_wait_max_us = std::max(into.loader_wait_max_us, from.loader_wait_max_us);
  into.marks += from.marks;
  into.optimizer_mask |= from.optimizer_mask;
  into.stepped_mask |= from.stepped_mask;
  into.scaler_skip = into.scaler_skip || from.scaler_skip;
  if (from.user_step >= 0) into.user_step = from.user_step;
}

void PhaseMachine::emit(const Window& window, std::uint8_t boundary, std::uint64_t flags) {
  paceline_step_record record{};
  record.version = PACELINE_RECORD_VERSION;
  record.bytes = sizeof(record);
  record.kind = PACELINE_KIND_STEP;
  record.boundary = boundary;
  record.optimizer_mask = window.stepped_mask;
  record.step = step_;
  record.user_step = window.user_step;
  record.start_ns = window.start_ns;
  record.wall_ns = window.end_ns - window.start_ns;
  record.flags = flags | (step_ == 1 ? PACELINE_FLAG_WARM_UP : 0) |
                 (window.scaler_skip ? PACELINE_FLAG_SCALER_SKIP : 0);
  record.valid = PACELINE_VALID_HOST_NS | PACELINE_VALID_MICRO_BATCHES | PACELINE_VALID_OVERHEAD_NS;
  if (window.user_step >= 0) record.valid |= PACELINE_VALID_USER_STEP;
  for (std::uint32_t i = 0; i < PACELINE_PHASE_COUNT; ++i) {
    record.host_ns[i] = window.host_ns[i];
    if ((host_phases_ & (1U << i)) != 0 || window.host_ns[i] != 0)
      record.source[i] = PACELINE_SOURCE_HOST;
  }
  record.source[PACELINE_PHASE_UNATTRIBUTED] = PACELINE_SOURCE_DERIVED;
  if (record.source[PACELINE_PHASE_COMM_EXPOSED] != PACELINE_SOURCE_ABSENT) {
    record.comm_exposed_ns = window.host_ns[PACELINE_PHASE_COMM_EXPOSED];
    record.valid |= PACELINE_VALID_COMM_EXPOSED_NS;
  }
  if (samples_told_) {
    record.samples = window.told_samples;
    record.valid |= PACELINE_VALID_SAMPLES;
  } else if (window.has_loader && !window.samples_unknown) {
    record.samples = window.samples;
    record.valid |= PACELINE_VALID_SAMPLES;
  }
  if (tokens_told_ || batch_tokens_told_) {
    record.tokens = tokens_told_ ? window.tokens : window.batch_tokens;
    record.valid |= PACELINE_VALID_TOKENS;
  }
  if (h2d_told_) {
    record.h2d_bytes = window.h2d_bytes;
    record.valid |= PACELINE_VALID_H2D_BYTES;
  }
  if (window.has_loader) {
    record.loader_wait_max_us = window.loader_wait_max_us;
    record.valid |= PACELINE_VALID_LOADER_WAIT_MAX_US;
  }
  record.micro_batches =
      clamp_to<std::uint16_t>(window.has_loader ? window.batches : window.backwards);
  if (boundary == PACELINE_BOUNDARY_OPTIMIZER) {
    record.optimizers_stepped = clamp_to<std::uint16_t>(window.optimizers_stepped);
    record.valid |= PACELINE_VALID_OPTIMIZERS_STEPPED;
  }
  record.overhead_ns =
      clamp_to<std::uint32_t>(std::uint64_t{window.marks} * mark_cost_ns_ + window.overhead_ns);
  sink_.take(record);
  if ((flags & PACELINE_FLAG_FINAL) == 0) ++step_;
}

}  // namespace paceline::trace
