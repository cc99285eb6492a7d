// SPDX-License-Identifier: Apache-2.0
// What a check found in a job's pod, as its launcher reports it to the node's agent: the check (of
// docs/designs/checks.md), the device, and the evidence. One line of text behind a SlotFrame of the
// kind kFinding.
//
// Values; pure. Text that is not a finding reads as nullopt, because any process in the container
// can send text.
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
  std::string subject;  // the device; empty: the pod
  std::string status;   // pass, unknown, warn, fail
  std::string evidence;
  bool operator==(const SlotFinding&) const = default;
};

/// At most kMostFindingText bytes; the evidence is cut to fit. Control characters become spaces.
std::string pack(const SlotFinding& finding);
std::optional<SlotFinding> unpack(std::string_view text);

}  // namespace paceline::telemetry
