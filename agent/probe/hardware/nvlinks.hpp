// SPDX-License-Identifier: Apache-2.0
// Which of its NVLinks a GPU should have active: NVML also lists the links of cards that have no
// bridge, and of boards whose links a hypervisor keeps. Pure; nothing fails.
#pragma once

#include <optional>

#include "agent/probe/hardware/hardware.hpp"

namespace paceline::agent {

/// NVSwitches on this node's own bus: then a fabric manager of this node programs them.
bool has_own_switches(const Hardware& hardware);

int active_nvlinks(const Gpu& gpu);

/// All that the node's GPUs have, on a board that connects every link; on cards with bridges as
/// many as the best connected card has. Absent for a GPU that need not have any.
std::optional<int> expected_nvlinks(const Hardware& hardware, const Gpu& gpu);

}  // namespace paceline::agent
