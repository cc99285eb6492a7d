// SPDX-License-Identifier: Apache-2.0
// AmendmentMerger: joins a step's host facts with the device, NCCL and CUPTI facts that arrive
// later as amendments, then passes the step on exactly once. A step waits at most 64 steps, or 5 s.
// A step of more than 2.5 s waits twice its own length, at most two minutes: a device may be a
// whole step behind its host. The steps of a rank that announces no such source are passed on at
// once.
//
// Ownership: values. Not thread-safe. An amendment whose step no longer waits is counted (`late`)
// and dropped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>

#include "common/base/clock.hpp"
#include "paceline/step_record.h"

namespace paceline::telemetry {

/// Copies into `step` exactly the fields whose valid bit `amendment` sets.
void apply_amendment(paceline_step_record& step, const paceline_step_record& amendment);

class AmendmentMerger {
 public:
  using Take = std::function<void(const paceline_step_record&)>;

  explicit AmendmentMerger(bool expects_amendments) : expects_amendments_(expects_amendments) {}

  bool expects_amendments() const { return expects_amendments_; }
  /// A source has started in the rank: the next steps wait.
  void expect_amendments() { expects_amendments_ = true; }

  void add(const paceline_step_record& record, SteadyTime now, const Take& take);
  /// Passes on the steps whose time is over.
  void expire(SteadyTime now, const Take& take);
  /// Passes on all waiting steps, because the rank has ended.
  void flush(const Take& take);
  std::uint64_t late() const { return late_; }
  std::size_t waiting() const { return waiting_.size(); }
  /// The number, from 0, of the oldest waiting record. All records before it were passed on.
  std::optional<std::uint64_t> oldest() const {
    return waiting_.empty() ? std::nullopt : std::optional(waiting_.front().record.seq - 1);
  }

 private:
  struct Waiting {
    paceline_step_record record;
    SteadyTime since;
  };

  bool expects_amendments_;
  std::deque<Waiting> waiting_;
  std::uint64_t late_ = 0;
};

}  // namespace paceline::telemetry
