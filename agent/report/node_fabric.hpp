// SPDX-License-Identifier: Apache-2.0
// NodeFabric as JSON: what the operator's planner and people read about a node. Pure functions of
// what the probes found.
//
// Values are rounded where the machine is noisy and times are filled in apart, so that an unchanged
// node is an equal document and causes no write. The status never exceeds 16 KiB or the CRD's
// bounds: the devices that matter least are left out, and a condition says so.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "agent/checks/check.hpp"
#include "agent/checks/summary.hpp"
#include "agent/links/link.hpp"
#include "agent/probe/hardware/hardware.hpp"
#include "common/base/clock.hpp"

namespace paceline::agent {

inline constexpr std::size_t kMaxFabricBytes = 16 * 1024;

/// The status without times: devices, distances, and the conditions `Complete` and, on a node with
/// accelerators, `GpuHealthy`, `FabricHealthy` and, where the checks ran, `GpuDirectReady`;
/// `RuntimeReady` where the agent injects.
nlohmann::json fabric_status(const Hardware& hardware, std::string_view agent_version,
                             const std::vector<Finding>& findings = {},
                             const std::optional<Summary>& runtime = std::nullopt);

/// Adds the latest measured links, the newest first, as many as the bound leaves room for.
void add_links(nlohmann::json& status, const std::vector<Link>& links);

/// Equal but for the times.
bool same_fabric(const nlohmann::json& a, const nlohmann::json& b);

/// Fills in the times: observedTime is `now`; a condition's lastTransitionTime is kept from
/// `before` where its status is the same.
void stamp_times(nlohmann::json& status, const nlohmann::json& before, WallTime now);

/// The object without its status: name and owner (the Node of this life).
nlohmann::json fabric_object(std::string_view node_name, std::string_view node_uid);

/// One owner reference to a Node, as both NodeFabric and Lease carry it.
nlohmann::json node_owner(std::string_view node_name, std::string_view node_uid);

}  // namespace paceline::agent
