// SPDX-License-Identifier: Apache-2.0
#include "windows.hpp"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "base/clock.hpp"
#include "device/facts.hpp"
#include "device/sweep.hpp"

namespace paceline::cupti {
namespace {

constexpr std::uint64_t kIdleMs = 50;  // between two looks at the ring
constexpr std::uint64_t kOpenMs = 1;   // while a window is open
// How long the work of a window may take to end after it: some steps, within these bounds.
constexpr std::uint64_t kDrainSteps = 4;
constexpr std::uint64_t kDrainMin = 50'000'000;
constexpr std::uint64_t kDrainMax = 1'000'000'000;
constexpr std::uint64_t kPublishMs = 2000;  // for the host's record of a step
constexpr std::uint64_t kLookMs = 5;        // between two looks for it
constexpr std::uint64_t kWindowMs = 600'000;
constexpr std::uint64_t kPauseMs = 2000;
constexpr std::size_t kWalls = 32;      // steps of a median outside of windows
constexpr std::uint32_t kMarks = 1024;  // newest marks of the host
constexpr std::size_t kInside = 1024;   // and inside

std::atomic<bool> in_forked_child{false};

std::uint64_t median(std::vector<std::uint64_t> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

// Where the host was when it launched the work of a window.
std::vector<device::Mark> host_marks() {
  std::vector<paceline_mark> newest(kMarks);
  const int count = paceline_recent_marks(newest.data(), kMarks);
  std::vector<device::Mark> marks;
  for (int i = 0; i < count; ++i) {
    const paceline_mark& mark = newest[static_cast<std::size_t>(i)];
    marks.push_back({mark.ns, mark.phase});
  }
  return marks;
}

void ignore(void*, std::uint32_t, std::uint32_t, const void*) {}

}  // namespace

Windows& Windows::instance() {
  static Windows* const windows = new Windows;
  return *windows;
}

void Windows::start() {
  if (running_.exchange(true)) return;
  ::pthread_atfork(nullptr, nullptr, [] { in_forked_child = true; });
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  if (::pthread_sigmask(SIG_SETMASK, &all, &before) != 0) return;
  try {
    std::thread([this] { run(); }).detach();
    std::atexit([] { instance().stop(); });
  } catch (const std::system_error&) {
    done_ = true;
    turn_off("no thread could be started");
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// At exit() the driver is about to go, and a window must not be open then.
void Windows::stop() {
  if (in_forked_child) return;
  std::unique_lock lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
  changed_.wait_for(lock, std::chrono::milliseconds(kPauseMs), [this] { return done_; });
}

int Windows::request(std::uint32_t steps) {
  if (in_forked_child) return PACELINE_EFORKED;
  if (steps == 0 || steps > PACELINE_WINDOW_STEPS_MAX) return PACELINE_EINVAL;
  const std::lock_guard lock(mutex_);
  if (!running_ || done_) return PACELINE_EDISABLED;
  requested_ = steps;
  changed_.notify_all();
  return PACELINE_OK;
}

int Windows::pause() {
  if (in_forked_child) return PACELINE_EFORKED;
  std::unique_lock lock(mutex_);
  ++paused_;
  changed_.notify_all();
  const bool free = changed_.wait_for(lock, std::chrono::milliseconds(kPauseMs),
                                      [this] { return !open_ || done_; });
  return free ? PACELINE_OK : PACELINE_EDEVICE;
}

int Windows::resume() {
  if (in_forked_child) return PACELINE_EFORKED;
  const std::lock_guard lock(mutex_);
  if (paused_ == 0) return PACELINE_EORDER;
  --paused_;
  resumed_ = true;
  return PACELINE_OK;
}

int Windows::report(paceline_window_totals& out) {
  if (in_forked_child) return PACELINE_EFORKED;
  if (out.size < sizeof(std::uint32_t)) return PACELINE_EINVAL;
  const std::lock_guard lock(mutex_);
  report_.size = std::min<std::uint32_t>(out.size, sizeof(report_));
  std::memcpy(&out, &report_, report_.size);
  return PACELINE_OK;
}

void Windows::turn_off(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (reason == report_.off) return;
  std::snprintf(report_.off, sizeof(report_.off), "%s", reason.c_str());
  if (!reason.empty() && said_.insert(reason).second)
    std::fprintf(stderr, "paceline: kernel windows are off: %s\n", report_.off);
}

// Returns false if the process ends.
bool Windows::wait_ms(std::uint64_t milliseconds) {
  std::unique_lock lock(mutex_);
  const int paused = paused_;
  changed_.wait_for(lock, std::chrono::milliseconds(milliseconds),
                    [&] { return stopping_ || paused_ > paused; });
  return !stopping_;
}

void Windows::run() {
  while (wait_ms(kIdleMs)) {
    try {
      look();
    } catch (const std::bad_alloc&) {
      turn_off("no memory");
    }
  }
  const std::lock_guard lock(mutex_);
  done_ = true;
  changed_.notify_all();
}

void Windows::look() {
  const paceline_position at = paceline_current_position();
  if (hopeless_ || at.step == 0) return;
  if (at.ring_epoch != ring_epoch_) {
    ring_epoch_ = at.ring_epoch;
    next_ = at.step + kFirst;
  }
  if (of_launcher_.is_new()) (void)request(kSteps);
  if (!is_due(at)) return;
  std::uint32_t steps = kSteps;
  {
    const std::lock_guard lock(mutex_);
    if (paused_ > 0) return;
    if (requested_ != 0) steps = std::exchange(requested_, 0);
  }
  next_ = at.step + kPeriod;
  if (!ring_.map(at.ring_epoch) || !may_open()) return;
  sample(at, steps);
}

bool Windows::is_due(const paceline_position& at) {
  const std::lock_guard lock(mutex_);
  return paused_ == 0 && (requested_ != 0 || at.step >= next_);
}

bool Windows::is_taken(std::string& problem) {
  void* subscriber = nullptr;
  const int status = library_->subscribe(&subscriber, ignore, nullptr);
  if (status == kSuccess) library_->unsubscribe(subscriber);
  if (status != kSuccess && status != kMultipleSubscribers)
    problem = "cuptiSubscribe: " + library_->error_name(status);
  return status == kMultipleSubscribers;
}

bool Windows::may_open() {
  if (!library_) {
    auto found = Library::find();
    if (!found) {
      hopeless_ = true;
      turn_off(found.error());
      return false;
    }
    library_ = std::move(*found);
    collector_ = std::make_unique<Collector>(*library_);
  }
  std::string problem;
  shared_ = is_taken(problem);
  bool at_rest = false;
  {
    const std::lock_guard lock(mutex_);
    at_rest = resumed_;
  }
  // PyTorch's profiler stays subscribed when it has ended. Between its uses it does nothing.
  foreign_ = foreign_ || (shared_ && !at_rest);
  if (foreign_ && !shared_) foreign_ = false;  // the other profiler has gone
  if (shared_ && foreign_) problem = "another profiler uses CUPTI";
  turn_off(problem);
  return problem.empty();
}

// Returns false if the window must close before.
bool Windows::wait_for_step(std::uint32_t ring_epoch, std::uint64_t step) {
  const std::uint64_t until = base::monotonic_ns() + kWindowMs * 1'000'000;
  while (base::monotonic_ns() < until) {
    const paceline_position at = paceline_current_position();
    if (at.ring_epoch != ring_epoch || at.step == 0) return false;
    if (at.step >= step) return true;
    if (!wait_ms(kOpenMs) || interrupted()) return false;
  }
  return false;
}

// Gets the buffers back. Work of the window may still run on the device.
void Windows::drain(bool whole, std::uint64_t step_ns) {
  const std::uint64_t until =
      base::monotonic_ns() + std::clamp(kDrainSteps * step_ns, kDrainMin, kDrainMax);
  collector_->flush(false);
  while (whole && !collector_->all_returned() && base::monotonic_ns() < until && !interrupted()) {
    wait_ms(kOpenMs);
    collector_->flush(false);
  }
  if (!collector_->all_returned()) collector_->flush(true);
}

// Returns the first of the steps whose records are whole; nullopt if the window was cut short.
std::optional<std::uint64_t> Windows::record(std::uint32_t ring_epoch, std::uint32_t steps,
                                             std::uint64_t step_ns) {
  if (const auto begun = collector_->begin(); !begun) {
    turn_off(begun.error());
    return std::nullopt;
  }
  // The step in which it began is not whole. In the next ones the device may still do work that was
  // launched before.
  const std::uint64_t first = paceline_current_position().step + 1 + lead_;
  const bool whole = wait_for_step(ring_epoch, first + steps);
  std::string problem;
  if (!shared_ && is_taken(problem)) {
    collector_->abandon();
    hopeless_ = ++taken_over_ == kMostTakenOver;
    turn_off("another profiler has taken CUPTI over");
    return std::nullopt;
  }
  collector_->end();
  drain(whole, step_ns);
  return whole ? std::optional(first) : std::nullopt;
}

void Windows::sample(const paceline_position& at, std::uint32_t steps) {
  {
    const std::lock_guard lock(mutex_);
    if (paused_ > 0) return;
    open_ = true;
  }
  paceline_announce(PACELINE_CAPABILITY_CUPTI);
  const std::uint64_t outside = median(ring_.newest_walls(kWalls));
  const auto first = record(at.ring_epoch, steps, outside);
  {
    const std::lock_guard lock(mutex_);
    open_ = false;
    report_.lost += collector_->lost();
    report_.cupti_ns += collector_->overhead_ns();
    // On a busy machine no step may have been published when the first window opened.
    (report_.before_ns == 0 ? report_.before_ns : report_.after_ns) = outside;
    ++(first ? report_.windows : report_.cancelled);
    changed_.notify_all();
  }
  if (first) {
    publish(at.ring_epoch, *first, *first + steps - 1);
  } else {
    next_ = at.step + kRetry;
  }
}

std::optional<paceline_step_record> Windows::published_step(std::uint64_t number) {
  const std::uint64_t until = base::monotonic_ns() + kPublishMs * 1'000'000;
  do {
    if (auto found = ring_.step(number)) return found;
  } while (base::monotonic_ns() < until && wait_ms(kLookMs));
  return ring_.step(number);
}

void Windows::publish(std::uint32_t ring_epoch, std::uint64_t first, std::uint64_t last) {
  const auto intervals = collector_->intervals();
  if (!intervals) return turn_off(intervals.error());
  const auto busiest = device::busiest(*intervals);
  if (!busiest) return;  // the program does not use a GPU in its steps
  const std::vector<device::Mark> marks = host_marks();
  const bool truncated = collector_->lost() > 0;
  std::uint32_t added = 0;
  bool behind = false;
  for (std::uint64_t number = first; number <= last; ++number) {
    const auto host = published_step(number);
    if (!host) continue;
    if (inside_.size() < kInside) inside_.push_back(host->wall_ns);
    // Before this the device may have done work that was launched before the window.
    behind = behind || host->start_ns < busiest->since_ns;
    if (host->start_ns < busiest->since_ns) continue;
    const device::Partition partition = device::sweep(*intervals, busiest->device, host->start_ns,
                                                      host->start_ns + host->wall_ns, marks);
    paceline_step_record facts = device::facts_of(partition, truncated);
    facts.step = number;
    facts.ring_epoch = ring_epoch;
    if (paceline_amend(&facts) == PACELINE_OK) ++added;
  }
  // The device was further behind the host than the window led.
  if (behind && lead_ < kMostLead) {
    lead_ *= 2;
    next_ = last + kRetry;
  }
  const std::lock_guard lock(mutex_);
  report_.steps += added;
  report_.inside_ns = median(inside_);
}

}  // namespace paceline::cupti
