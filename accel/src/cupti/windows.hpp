// SPDX-License-Identifier: Apache-2.0
// When a kernel window is open, and what becomes of it. One thread follows the steps of the
// process's ring. It opens a window when one is due or asked for, closes it after the steps that
// it wants, and adds the device's partition of these steps to the ring.
//
// CUPTI serves one profiler at a time. So a window opens only if no other profiler has subscribed,
// and CUPTI stays free for others: the own subscription is given back at once. If another profiler
// subscribes during a window, the window is dropped.
//
// Ownership: one object per process, never destroyed; the thread ends at exit(). Threads: any
// thread may call request, pause, resume and report. Failure: one line on standard error, and no
// windows until the cause is gone.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "collector.hpp"
#include "paceline/sources.h"
#include "paceline/window.h"
#include "ring_steps.hpp"
#include "window_request.hpp"

namespace paceline::cupti {

class Windows {
 public:
  static Windows& instance();

  /// Starts the thread. Later calls do nothing.
  void start();
  int request(std::uint32_t steps);
  int pause();
  int resume();
  int report(paceline_window_totals& out);

 private:
  // Steps between the beginnings of two windows, and before the first one.
  static constexpr std::uint64_t kPeriod = 500;
  static constexpr std::uint64_t kFirst = 20;
  static constexpr std::uint64_t kRetry = 20;  // after a window that was cut short
  static constexpr std::uint32_t kSteps = 2;
  static constexpr std::uint64_t kMostLead = 16;
  static constexpr int kMostTakenOver = 3;

  void run();
  void stop();
  bool wait_ms(std::uint64_t milliseconds);
  void look();
  bool is_due(const paceline_position& at);
  /// Opens a window, waits for its steps, and publishes them.
  void sample(const paceline_position& at, std::uint32_t steps);
  bool may_open();
  /// Sets `problem` if CUPTI refuses for another reason.
  bool is_taken(std::string& problem);
  std::optional<std::uint64_t> record(std::uint32_t ring_epoch, std::uint32_t steps,
                                      std::uint64_t step_ns);
  bool wait_for_step(std::uint32_t ring_epoch, std::uint64_t step);
  void drain(bool whole, std::uint64_t step_ns);
  void publish(std::uint32_t ring_epoch, std::uint64_t first, std::uint64_t last);
  std::optional<paceline_step_record> published_step(std::uint64_t number);
  void turn_off(const std::string& reason);
  bool interrupted() const { return stopping_ || paused_ > 0; }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> running_{false};
  std::atomic<bool> stopping_{false};
  std::atomic<int> paused_{0};
  bool open_ = false;     // under mutex_, as is all up to the report
  bool resumed_ = false;  // another profiler of this process has run
  std::uint32_t requested_ = 0;
  paceline_window_totals report_{};
  std::set<std::string> said_;  // reasons that were printed
  bool done_ = false;           // the thread has ended

  // Of the thread alone.
  std::unique_ptr<Collector> collector_;
  std::optional<Library> library_;
  RingSteps ring_;
  WindowRequest of_launcher_;
  std::uint32_t ring_epoch_ = 0;
  std::uint64_t next_ = kFirst;  // step that the next window may open in
  std::uint64_t lead_ = 1;       // whole steps between the opening and the first counted one
  bool foreign_ = false;         // CUPTI was taken before any profiler of this process ran
  bool shared_ = false;          // this window opened beside a profiler that is at rest
  bool hopeless_ = false;
  int taken_over_ = 0;
  std::vector<std::uint64_t> inside_;  // wall times of steps in windows
};

}  // namespace paceline::cupti
