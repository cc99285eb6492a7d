// SPDX-License-Identifier: Apache-2.0
#include "runtime.hpp"

#include <pthread.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "../contract.hpp"

namespace paceline::trace {
namespace {

// An address that differs between live threads. It costs less than asking the system for an id.
const void* this_thread() {
  static thread_local const char token = 0;
  return &token;
}

// Measures what a mark costs inside the library: clock, lock and arithmetic, on a
// PhaseMachine of its own.
std::uint32_t library_mark_cost() {
  class Nowhere final : public StepSink {
    void take(const paceline_step_record&) override {}
  } nowhere;
  constexpr int kRounds = 128;
  std::mutex mutex;
  PhaseMachine machine(nowhere, 0, 0);
  const std::uint64_t before = base::monotonic_ns();
  for (int i = 0; i < kRounds; ++i) {
    const std::lock_guard lock(mutex);
    machine.enter(base::monotonic_ns(), PACELINE_PHASE_OTHER);
    machine.leave(base::monotonic_ns(), PACELINE_PHASE_OTHER);
  }
  return static_cast<std::uint32_t>((base::monotonic_ns() - before) / (2 * kRounds));
}

}  // namespace

Runtime& Runtime::instance() {
  static Runtime* const runtime = new Runtime;
  return *runtime;
}

Runtime::Runtime() {
  ::pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                   [] {
                     instance().forked();
                     instance().mutex_.unlock();
                   });
}

void Runtime::forked() {
  if (state_.load(std::memory_order_relaxed) != State::kOpen) return;
  state_.store(State::kForked, std::memory_order_release);
  // The publishing thread does not exist in the child. Its objects are leaked, because a join would
  // never return.
  current_step_.store(0, std::memory_order_release);
  publisher_.release()->abandon();
  ring_.release()->abandon();
  machine_.release();
}

int Runtime::refusal() const {
  switch (state_.load(std::memory_order_acquire)) {
    case State::kForked: return PACELINE_EFORKED;
    case State::kDisabled: return PACELINE_EDISABLED;
    case State::kClosed:
    case State::kOpen: break;
  }
  return PACELINE_ECLOSED;
}

bool Runtime::counts(Claim claim) {
  const void* thread = this_thread();
  if (thread == owner_ || claim == Claim::kAny) return true;
  if (claim == Claim::kData) {
    if (owner_ != nullptr) return false;
    owner_ = thread;
    return true;
  }
  // Another thread is inside a phase. So this one is an engine's worker that runs a nested
  // backward, not a new training thread.
  if (owner_trains_ && !machine_->idle()) return false;
  // The previous thread may be prefetching inside a loader. Its leave will not count, so its enter
  // is dropped.
  if (owner_ != nullptr) machine_->drop_open(base::monotonic_ns());
  owner_ = thread;
  owner_trains_ = true;
  return true;
}

int Runtime::open(const paceline_options* options) {
  if (state_.load(std::memory_order_acquire) == State::kOpen) return PACELINE_OK;
  const std::lock_guard lock(mutex_);
  if (state_ == State::kOpen) return PACELINE_OK;
  if (state_ != State::kClosed) return refusal();
  const char* disable = process_environment(runtime_env::kDisable);
  if (disable != nullptr && std::strcmp(disable, "1") == 0) {
    state_ = State::kDisabled;
    return PACELINE_EDISABLED;
  }
  paceline_options known{};
  if (options != nullptr) {
    if (options->size < sizeof(std::uint32_t)) return PACELINE_EINVAL;
    std::memcpy(&known, options, options->size < sizeof(known) ? options->size : sizeof(known));
  }
  try {
    const paceline_ring_header identity = identify(process_environment, known, epoch_ + 1);
    int error = 0;
    auto ring = RingWriter::open(identity, error);
    if (!ring) {
      system_error_ = error;
      return PACELINE_ESYSTEM;
    }
    const char* socket = process_environment(runtime_env::kTelemetrySocket);
    auto publisher =
        std::make_unique<Publisher>(*ring, identity, socket == nullptr ? "" : socket, &timeline_);
    auto machine = std::make_unique<PhaseMachine>(*publisher, known.host_phases,
                                                  known.mark_cost_ns + library_mark_cost());
    if (!publisher->start()) {
      system_error_ = EAGAIN;
      return PACELINE_ESYSTEM;
    }
    ring_ = std::move(ring);
    publisher_ = std::move(publisher);
    machine_ = std::move(machine);
  } catch (const std::bad_alloc&) {
    system_error_ = ENOMEM;
    return PACELINE_ESYSTEM;
  }
  owner_ = nullptr;
  owner_trains_ = false;
  tracing_ = true;
  marks_.clear();
  ++epoch_;
  set_current_step(0);
  timeline_.begin(epoch_);
  tell_device();
  state_.store(State::kOpen, std::memory_order_release);
  return PACELINE_OK;
}

int Runtime::close() {
  const std::lock_guard lock(mutex_);
  if (state_ != State::kOpen) return refusal();
  const std::uint64_t now = base::monotonic_ns();
  machine_->finish(now);
  // Hands the last step over; it records nothing.
  DeviceMark device = machine_->take_device_mark();
  device.boundary = false;
  timeline_.apply(device, now, std::nullopt);
  state_.store(State::kClosed, std::memory_order_release);
  current_step_.store(0, std::memory_order_release);
  machine_.reset();
  publisher_.reset();
  ring_.reset();
  return PACELINE_OK;
}

void Runtime::tell_device() {
  const auto device = timeline_.device();
  if (!device || !timeline_.measures()) return;
  ring_->set_device(PACELINE_DEVICE_CUDA, static_cast<std::uint32_t>(device->index + 1),
                    device->pci_address.c_str());
  ring_->announce(PACELINE_CAPABILITY_DEVICE_EVENTS);
}

int Runtime::start_device(std::uint32_t stream_cost_ns, std::string& why) {
  if (state_.load(std::memory_order_acquire) != State::kOpen) return refusal();
  {
    const std::lock_guard lock(mutex_);
    if (!ring_) return refusal();
    ring_->set_device(PACELINE_DEVICE_CUDA, 0, "");
  }
  const auto driver = cuda::Driver::get();
  if (!driver) {
    why = driver.error();
    return PACELINE_EDEVICE;
  }
  const auto device = timeline_.start(**driver, stream_cost_ns);
  if (!device) {
    why = device.error();
    return PACELINE_EDEVICE;
  }
  if (!*device) return PACELINE_EORDER;
  const std::lock_guard lock(mutex_);
  if (!ring_) return refusal();
  tell_device();
  return PACELINE_OK;
}

namespace {

thread_local std::optional<cuda::Stream> next_stream;

}  // namespace

void Runtime::set_stream(std::uint64_t stream) {
  next_stream = reinterpret_cast<cuda::Stream>(static_cast<std::uintptr_t>(stream));
}

std::optional<cuda::Stream> Runtime::take_stream() {
  return std::exchange(next_stream, std::nullopt);
}

int Runtime::amend(const paceline_step_record& facts) {
  if (state_.load(std::memory_order_acquire) != State::kOpen) return refusal();
  const std::lock_guard lock(mutex_);
  if (!publisher_) return refusal();
  if (facts.ring_epoch != epoch_) return PACELINE_ECLOSED;
  publisher_->amend(facts);
  return PACELINE_OK;
}

int Runtime::set_collective(const paceline_collective& collective) {
  const std::lock_guard lock(mutex_);
  if (!ring_) return refusal();
  ring_->set_collective(collective);
  return PACELINE_OK;
}

int Runtime::announce(std::uint64_t capabilities) {
  const std::lock_guard lock(mutex_);
  if (!ring_) return refusal();
  ring_->announce(capabilities);
  return PACELINE_OK;
}

int Runtime::recent_marks(paceline_mark* marks, std::uint32_t most) {
  const std::lock_guard lock(mutex_);
  if (!ring_) return refusal();
  return static_cast<int>(marks_.newest(marks, most));
}

int Runtime::ring_fd() {
  const std::lock_guard lock(mutex_);
  return ring_ ? ring_->fd() : refusal();
}

int Runtime::set_tracing(bool on) {
  const std::lock_guard lock(mutex_);
  if (!machine_) return refusal();
  if (on && !tracing_) machine_->restart(base::monotonic_ns());
  tracing_ = on;
  return PACELINE_OK;
}

}  // namespace paceline::trace
