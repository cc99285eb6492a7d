// SPDX-License-Identifier: Apache-2.0
// The functions of paceline.h. Each checks its arguments and makes one call into Runtime; no
// exception leaves it.
#include <cstdio>
#include <string>

#include "runtime.hpp"

namespace {

using paceline::trace::PhaseMachine;
using paceline::trace::Runtime;
using Claim = Runtime::Claim;

Runtime& runtime() { return Runtime::instance(); }

}  // namespace

extern "C" {

int paceline_api_version(void) { return PACELINE_API_VERSION; }
const char* paceline_version(void) { return PACELINE_VERSION; }

int paceline_open(const struct paceline_options* options) { return runtime().open(options); }
int paceline_close(void) { return runtime().close(); }
int paceline_ring_fd(void) { return runtime().ring_fd(); }
int paceline_system_error(void) { return runtime().system_error(); }
int paceline_set_tracing(int32_t on) { return runtime().set_tracing(on != 0); }

int paceline_device_start(char* why, uint32_t size, uint32_t stream_cost_ns) {
  std::string reason;
  const int status = runtime().start_device(stream_cost_ns, reason);
  if (why != nullptr && size > 0) std::snprintf(why, size, "%s", reason.c_str());
  return status;
}

int paceline_device_stream(uint64_t stream) {
  Runtime::set_stream(stream);
  return PACELINE_OK;
}

int paceline_step(int64_t user_step) {
  if (user_step < -1) return PACELINE_EINVAL;
  return runtime().mark(Claim::kTraining, [&](PhaseMachine& machine, uint64_t now) {
    machine.step(now, user_step);
    return true;
  });
}

int paceline_phase_enter(uint32_t phase) {
  switch (phase) {
    case PACELINE_PHASE_DATA_WAIT: return paceline_loader_enter(0, 1);
    case PACELINE_PHASE_BACKWARD: return paceline_backward_enter();
    case PACELINE_PHASE_OPTIMIZER: return paceline_optimizer_enter(0);
    default: break;
  }
  if (phase >= PACELINE_PHASE_UNATTRIBUTED) return PACELINE_EINVAL;
  return runtime().mark(
      Claim::kData, [&](PhaseMachine& machine, uint64_t now) { return machine.enter(now, phase); });
}

int paceline_phase_leave(uint32_t phase) {
  switch (phase) {
    case PACELINE_PHASE_DATA_WAIT: return paceline_loader_leave(0, PACELINE_SAMPLES_UNKNOWN);
    case PACELINE_PHASE_BACKWARD: return paceline_backward_leave();
    case PACELINE_PHASE_OPTIMIZER: return paceline_optimizer_leave(0);
    default: break;
  }
  if (phase >= PACELINE_PHASE_UNATTRIBUTED) return PACELINE_EINVAL;
  return runtime().mark(
      Claim::kData, [&](PhaseMachine& machine, uint64_t now) { return machine.leave(now, phase); });
}

int paceline_loader_enter(uint64_t loader, int32_t gradients) {
  return runtime().mark(Claim::kData, [&](PhaseMachine& machine, uint64_t now) {
    return machine.loader_enter(now, loader, gradients != 0);
  });
}

int paceline_loader_leave(uint64_t loader, int64_t samples) {
  if (samples < PACELINE_NO_BATCH) return PACELINE_EINVAL;
  return runtime().mark(Claim::kData, [&](PhaseMachine& machine, uint64_t now) {
    return machine.loader_leave(now, loader, samples);
  });
}

int paceline_backward_enter(void) {
  return runtime().mark(Claim::kTraining, [](PhaseMachine& machine, uint64_t now) {
    return machine.backward_enter(now);
  });
}

int paceline_gradients_done(void) {
  return runtime().mark(
      Claim::kAny, [](PhaseMachine& machine, uint64_t now) { return machine.gradients_done(now); });
}

int paceline_backward_leave(void) {
  return runtime().mark(Claim::kTraining, [](PhaseMachine& machine, uint64_t now) {
    return machine.backward_leave(now);
  });
}

int paceline_optimizer_enter(uint32_t optimizer) {
  return runtime().mark(Claim::kTraining, [&](PhaseMachine& machine, uint64_t now) {
    return machine.optimizer_enter(now, optimizer);
  });
}

int paceline_optimizer_leave(uint32_t optimizer) {
  return runtime().mark(Claim::kTraining, [&](PhaseMachine& machine, uint64_t now) {
    return machine.optimizer_leave(now, optimizer);
  });
}

int paceline_count(uint32_t counter, uint64_t amount) {
  if (counter > PACELINE_COUNTER_BATCH_TOKENS) return PACELINE_EINVAL;
  return runtime().mark(Claim::kAny, [&](PhaseMachine& machine, uint64_t) {
    machine.count(counter, amount);
    return true;
  });
}

struct paceline_position paceline_current_position(void) {
  const Runtime::Step step = runtime().current_step();
  return {step.number, step.ring_epoch, 0};
}

int paceline_amend(const struct paceline_step_record* facts) {
  return facts == nullptr ? PACELINE_EINVAL : runtime().amend(*facts);
}

int paceline_announce(uint64_t capabilities) { return runtime().announce(capabilities); }

int paceline_set_collective(const struct paceline_collective* collective) {
  return collective == nullptr ? PACELINE_EINVAL : runtime().set_collective(*collective);
}

int paceline_recent_marks(struct paceline_mark* marks, uint32_t most) {
  return marks == nullptr ? PACELINE_EINVAL : runtime().recent_marks(marks, most);
}

}  // extern "C"
