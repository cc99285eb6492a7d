// SPDX-License-Identifier: Apache-2.0
// Time is injected: code asks a Clock, never the system, so that tests and the simulation control
// it. Use `steady` for time-outs (it never jumps) and `wall` for times that people and the API
// read. Implementations are thread-safe. Nothing here fails.
#pragma once

#include <chrono>

namespace paceline {

using SteadyTime = std::chrono::steady_clock::time_point;
using WallTime = std::chrono::system_clock::time_point;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual SteadyTime steady() const = 0;
  virtual WallTime wall() const = 0;
};

class SystemClock final : public Clock {
 public:
  SteadyTime steady() const override { return std::chrono::steady_clock::now(); }
  WallTime wall() const override { return std::chrono::system_clock::now(); }
};

/// A clock that moves only when a test tells it to. Not thread-safe.
class ManualClock final : public Clock {
 public:
  SteadyTime steady() const override { return steady_; }
  WallTime wall() const override { return wall_; }
  void advance(std::chrono::nanoseconds by) {
    steady_ += std::chrono::duration_cast<std::chrono::steady_clock::duration>(by);
    wall_ += std::chrono::duration_cast<std::chrono::system_clock::duration>(by);
  }
  /// Simulates a clock jump: only the wall time changes.
  void jump_wall(std::chrono::nanoseconds by) {
    wall_ += std::chrono::duration_cast<std::chrono::system_clock::duration>(by);
  }

 private:
  SteadyTime steady_{std::chrono::hours(1)};
  WallTime wall_{std::chrono::sys_days(std::chrono::year(2026) / 1 / 1)};
};

}  // namespace paceline
