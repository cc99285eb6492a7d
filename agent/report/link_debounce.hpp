// SPDX-License-Identifier: Apache-2.0
// Hysteresis for links: one that went down is reported at once, one that came back only after it
// stayed up for a while. A link that flaps is so one report, not one per flap.
//
// Belongs to one thread. Nothing fails; a device that went away is forgotten.
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

  /// Reports links as down that have been up for less than the hold. Answers when the first of them
  /// may be reported up.
  std::optional<SteadyTime> apply(Hardware& hardware, SteadyTime now);

 private:
  const std::chrono::milliseconds hold_;
  std::map<std::string, SteadyTime> last_down_;
};

}  // namespace paceline::agent
