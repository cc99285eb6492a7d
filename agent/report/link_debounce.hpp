// SPDX-License-Identifier: Apache-2.0
// Debounces links: a link that goes down is reported at once, a link that comes up only after it
// stayed up for a while. So a flapping link changes the report once. The agent's loop applies it to
// each probe (--link-hold).
//
// Belongs to one thread. Nothing fails; a device that was removed is forgotten.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>

#include "agent/probe/hardware/hardware.hpp"
#include "common/base/clock.hpp"

namespace paceline::agent {

class LinkDebounce {
 public:
  explicit LinkDebounce(std::chrono::milliseconds hold) : hold_(hold) {}

  /// Marks links as down that have been up for less than the hold time. Returns when the first of
  /// them may be reported as up.
  std::optional<SteadyTime> apply(Hardware& hardware, SteadyTime now);

 private:
  const std::chrono::milliseconds hold_;
  std::map<std::string, SteadyTime> last_down_;
};

}  // namespace paceline::agent
