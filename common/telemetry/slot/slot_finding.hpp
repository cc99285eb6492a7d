// SPDX-License-Identifier: Apache-2.0
// What a check found in a job's pod, as its launcher tells the node's agent: which check of
// docs/designs/checks.md, of which device, and what was seen. One line of text behind a SlotFrame
// of the kind kFinding.
//
// Values; pure. A text that is no finding reads as absent: whoever is in the container can send
// any.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "common/telemetry/slot/slot_link.hpp"

namespace paceline::telemetry {

/// Of one pod.
inline constexpr std::size_t kMostFindings = 32;
inline constexpr std::size_t kMostFindingText = kMostSlotFrame - sizeof(SlotFrame);

struct SlotFinding {
  std::string check;    // its id
  std::string subject;  // a device; empty: the pod
  std::string status;   // pass, unknown, warn, fail
  std::string evidence;
  bool operator==(const SlotFinding&) const = default;
};

/// At most kMostFindingText bytes: the evidence is cut. Control characters become spaces.
std::string pack(const SlotFinding& finding);
std::optional<SlotFinding> unpack(std::string_view text);

}  // namespace paceline::telemetry
