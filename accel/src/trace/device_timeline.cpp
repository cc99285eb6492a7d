// SPDX-License-Identifier: Apache-2.0
#include "device_timeline.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <utility>

#include "base/clock.hpp"

namespace paceline::trace {
namespace {

constexpr std::uint16_t bit(std::uint32_t phase) { return static_cast<std::uint16_t>(1U << phase); }

constexpr std::uint16_t kComputing = bit(PACELINE_PHASE_FORWARD) | bit(PACELINE_PHASE_BACKWARD) |
                                     bit(PACELINE_PHASE_RECOMPUTE) | bit(PACELINE_PHASE_OPTIMIZER) |
                                     bit(PACELINE_PHASE_OTHER);

constexpr std::uint8_t kDeviceEvent = PACELINE_SOURCE_EVENT << 4U;

}  // namespace

std::uint32_t device_phase(std::uint16_t phases) {
  if (phases == 0) return PACELINE_PHASE_OTHER;
  const auto named = static_cast<std::uint16_t>(phases & ~bit(PACELINE_PHASE_OTHER));
  if (named == 0) return PACELINE_PHASE_OTHER;
  for (std::uint32_t phase = 0; phase < PACELINE_PHASE_COUNT; ++phase) {
    if (named == bit(phase)) return phase;
  }
  return (named & ~kComputing) == 0 ? PACELINE_PHASE_COMPUTE_UNDIVIDED
                                    : PACELINE_PHASE_UNATTRIBUTED;
}

std::expected<std::optional<DeviceTimeline::Device>, std::string> DeviceTimeline::start(
    const cuda::Driver& driver, std::uint32_t stream_cost_ns) {
  const std::lock_guard lock(mutex_);
  if (device_) return device_;
  stream_cost_ns_ = stream_cost_ns;
  const auto problem = [&](const char* call, int status) {
    return std::unexpected(std::string(call) + ": " + driver.error_name(status));
  };
  cuda::Context context = nullptr;
  if (const int status = driver.context_current(&context); status != cuda::kSuccess)
    return problem("cuCtxGetCurrent", status);
  if (context == nullptr) return std::nullopt;
  Device device;
  if (const int status = driver.context_device(&device.index); status != cuda::kSuccess)
    return problem("cuCtxGetDevice", status);
  char address[16] = {};  // as long as the header's field
  if (const int status = driver.device_pci_address(address, sizeof(address), device.index);
      status != cuda::kSuccess)
    return problem("cuDeviceGetPCIBusId", status);
  device.pci_address = address;
  // As Linux and NVML's users write it.
  std::transform(device.pci_address.begin(), device.pci_address.end(), device.pci_address.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  flights_ = std::make_unique<std::array<Flight, kFlights>>();
  driver_ = &driver;
  context_ = context;
  device_ = std::move(device);
  state_.store(State::kMeasuring, std::memory_order_release);
  return device_;
}

std::optional<DeviceTimeline::Device> DeviceTimeline::device() const {
  const std::lock_guard lock(mutex_);
  return device_;
}

void DeviceTimeline::lose() { state_.store(State::kLost, std::memory_order_release); }

void DeviceTimeline::begin(std::uint32_t ring_epoch) {
  const std::lock_guard lock(mutex_);
  ring_epoch_ = ring_epoch;
  discard();
}

void DeviceTimeline::apply(const DeviceMark& mark, std::uint64_t now,
                           std::optional<cuda::Stream> stream) {
  if (!measures()) return;
  const std::lock_guard lock(mutex_);
  if (mark.commit_before != 0) commit(mark.commit_before);
  if (mark.discard) discard();
  if (mark.boundary) {
    skipped_phases_ |= mark.phases;
    const bool recorded = stream && record(now, *stream, mark.end);
    if (mark.end) candidate_ = recorded ? count_ : 0;
    const std::uint64_t took = std::min(base::monotonic_ns() - now, kLongestRecord);
    cost_ns_.fetch_add(took + stream_cost_ns_, std::memory_order_relaxed);
  }
  if (mark.commit_after != 0) commit(mark.commit_after);
}

DeviceTimeline::Event* DeviceTimeline::free_event() {
  for (std::uint32_t tried = 0; tried < created_; ++tried) {
    Event& event = events_[next_event_++ % created_];
    if (event.users.load(std::memory_order_acquire) == 0) return &event;
  }
  if (created_ == kEvents) return nullptr;
  // A capture on another thread forbids some calls to threads that are not in relaxed mode.
  int mode = cuda::kRelaxedCapture;
  driver_->capture_mode(&mode);
  Event& event = events_[created_];
  const int status = driver_->event_create(&event.handle, 0);
  driver_->capture_mode(&mode);
  if (status != cuda::kSuccess) return nullptr;
  ++created_;
  return &event;
}

// Records an event for the boundary, or returns false. The last place of a step is for its end.
bool DeviceTimeline::record(std::uint64_t now, cuda::Stream stream, bool end) {
  if (count_ + (end ? 0 : 1) >= kMarks) {
    truncated_ = true;
    return false;
  }
  cuda::Context context = nullptr;
  if (driver_->context_current(&context) != cuda::kSuccess || context != context_) return false;
  int capturing = 0;
  if (driver_->stream_is_capturing(stream, &capturing) != cuda::kSuccess || capturing != 0)
    return false;
  Event* event = free_event();
  if (event == nullptr) {
    truncated_ = true;
    return false;
  }
  if (end && count_ > 0) {
    int mode = cuda::kRelaxedCapture;
    driver_->capture_mode(&mode);
    kept_up_ = driver_->event_query(marks_[count_ - 1].event->handle) == cuda::kSuccess;
    driver_->capture_mode(&mode);
  }
  if (driver_->event_record(event->handle, stream) != cuda::kSuccess) {
    lose();
    return false;
  }
  event->users.store(1, std::memory_order_relaxed);
  marks_[count_++] = {event, std::exchange(skipped_phases_, std::uint16_t{0}), now};
  return true;
}

// Frees the first marks.
void DeviceTimeline::drop(std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i)
    marks_[i].event->users.fetch_sub(1, std::memory_order_release);
  std::copy(marks_.begin() + count, marks_.begin() + count_, marks_.begin());
  count_ -= count;
}

void DeviceTimeline::discard() {
  drop(count_);
  candidate_ = 0;
  truncated_ = kept_up_ = false;
  skipped_phases_ = 0;
}

// Hands the candidate over as this step. Its last event is also the first one of the next step.
void DeviceTimeline::commit(std::uint64_t step) {
  const std::uint32_t count = std::exchange(candidate_, 0);
  if (count == 0) {
    // The end of the step was not recorded, so the start of the next one is not known either.
    drop(count_);
    truncated_ = kept_up_ = false;
    return;
  }
  const std::uint32_t tail = tail_.load(std::memory_order_relaxed);
  if (count > 1 && tail - head_.load(std::memory_order_acquire) < kFlights) {
    Flight& flight = (*flights_)[tail % kFlights];
    flight.step = step;
    flight.ring_epoch = ring_epoch_;
    flight.count = count;
    flight.reached = 0;
    flight.truncated = truncated_;
    flight.kept_up = kept_up_;
    std::copy(marks_.begin(), marks_.begin() + count, flight.marks.begin());
    for (std::uint32_t i = 0; i < count; ++i)
      flight.marks[i].event->users.fetch_add(1, std::memory_order_relaxed);
    tail_.store(tail + 1, std::memory_order_release);
  }
  drop(count - 1);
  truncated_ = kept_up_ = false;
}

bool DeviceTimeline::reached(Flight& flight) {
  for (; flight.reached < flight.count; ++flight.reached) {
    const int status = driver_->event_query(flight.marks[flight.reached].event->handle);
    if (status == cuda::kSuccess) continue;
    if (status != cuda::kNotReady) lose();
    return false;
  }
  return true;
}

std::optional<paceline_step_record> DeviceTimeline::facts(const Flight& flight) const {
  paceline_step_record record{};
  record.step = flight.step;
  record.ring_epoch = flight.ring_epoch;
  record.valid = PACELINE_VALID_DEVICE_NS | PACELINE_VALID_DEVICE_WINDOW_NS;
  if (flight.truncated) record.flags |= PACELINE_FLAG_TRUNCATED_POOL;
  const Mark& start = flight.marks[0];
  std::uint64_t before = 0;
  std::int64_t least_lag = 0;
  std::int64_t most_lag = 0;
  for (std::uint32_t i = 1; i < flight.count; ++i) {
    const Mark& mark = flight.marks[i];
    float milliseconds = 0;
    if (driver_->event_elapsed(&milliseconds, start.event->handle, mark.event->handle) !=
        cuda::kSuccess)
      return std::nullopt;
    // Events of two streams may be out of order, and the driver rounds. All times are taken from
    // the start, so that the intervals add up to the window.
    const double since = std::max(0.0, std::round(static_cast<double>(milliseconds) * 1e6));
    const std::uint64_t at = std::max(before, static_cast<std::uint64_t>(since));
    const std::uint32_t phase = device_phase(mark.phases);
    record.device_ns[phase] += at - before;
    record.source[phase] = kDeviceEvent;
    before = at;
    const std::int64_t lag =
        static_cast<std::int64_t>(at) - static_cast<std::int64_t>(mark.host_ns - start.host_ns);
    least_lag = std::min(least_lag, lag);
    most_lag = std::max(most_lag, lag);
  }
  record.device_window_ns = before;
  if (record.source[PACELINE_PHASE_COMM_EXPOSED] != 0) {
    record.comm_exposed_ns = record.device_ns[PACELINE_PHASE_COMM_EXPOSED];
    record.valid |= PACELINE_VALID_COMM_EXPOSED_NS;
  }
  if (flight.kept_up && most_lag - least_lag <= static_cast<std::int64_t>(before / kLagPart))
    record.flags |= PACELINE_FLAG_DEVICE_FOLLOWS;
  return record;
}

void DeviceTimeline::poll(const std::function<void(const paceline_step_record&)>& take) {
  if (!measures()) return;
  std::uint32_t head = head_.load(std::memory_order_relaxed);
  const std::uint32_t tail = tail_.load(std::memory_order_acquire);
  if (head == tail) return;
  // In relaxed capture mode: in another mode, a query would end a capture of another thread.
  const cuda::Current current(*driver_, context_);
  for (; head != tail; ++head) {
    Flight& flight = (*flights_)[head % kFlights];
    if (!reached(flight)) return;
    if (const auto record = facts(flight)) take(*record);
    for (std::uint32_t i = 0; i < flight.count; ++i)
      flight.marks[i].event->users.fetch_sub(1, std::memory_order_release);
    head_.store(head + 1, std::memory_order_release);
  }
}

}  // namespace paceline::trace
