// SPDX-License-Identifier: Apache-2.0
// Readings of the error counters over the last hour, for the checks that look for increases. A
// fault so stays visible for an hour, and a counter that jumps once changes the report once and not
// twice. The agent's loop has one.
//
// Belongs to one thread; holds at most 13 readings. Nothing fails.
#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <utility>

#include "agent/checks/check.hpp"
#include "common/base/clock.hpp"

namespace paceline::agent {

class CounterWindow {
 public:
  static constexpr std::chrono::seconds kLength{3600};
  static constexpr std::chrono::seconds kStep{300};

  /// Returns the oldest reading of the window, nullopt at the first call; then stores this one.
  std::optional<EarlierCounters> compare(const Counters& counters, SteadyTime now) {
    while (!readings_.empty() && now - readings_.front().first > kLength) readings_.pop_front();
    std::optional<EarlierCounters> earlier;
    if (!readings_.empty()) {
      earlier = {std::chrono::duration_cast<std::chrono::seconds>(now - readings_.front().first),
                 readings_.front().second};
    }
    if (readings_.empty() || now - readings_.back().first >= kStep)
      readings_.emplace_back(now, counters);
    return earlier;
  }

 private:
  std::deque<std::pair<SteadyTime, Counters>> readings_;
};

}  // namespace paceline::agent
