// SPDX-License-Identifier: Apache-2.0
// How many NVLinks of a GPU should be active. NVML also lists the links of cards without a bridge,
// and of boards whose links a hypervisor keeps. The check `nvlink` and the NodeFabric use it. Pure;
// nothing fails.
#pragma once

#include <optional>

#include "agent/probe/hardware/hardware.hpp"

namespace paceline::agent {

/// True if NVSwitches are on this node's own bus: then a fabric manager on this node programs them.
bool has_own_switches(const Hardware& hardware);

int active_nvlinks(const Gpu& gpu);

/// On a board that connects every link: as many as the node's GPUs have. On cards with bridges: as
/// many as the best connected card has. nullopt for a GPU that may have none. That is also one in
/// MIG mode, in which NVLink carries no traffic and the driver of some boards turns it off.
std::optional<int> expected_nvlinks(const Hardware& hardware, const Gpu& gpu);

}  // namespace paceline::agent
