// SPDX-License-Identifier: Apache-2.0
// The NodeFabric object as JSON, which the operator's planner and people read. Publisher writes it.
// Pure functions of the probes' results.
//
// Noisy values are rounded and times are added separately, so that an unchanged node gives an equal
// document and causes no write. The status never exceeds 16 KiB or the CRD's bounds: the least
// important devices are left out, and a condition says so.
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

/// The status without times: devices, distances and conditions. `Complete` is always there; with
/// accelerators also `GpuHealthy`, `FabricHealthy` and, if the checks ran, `GpuDirectReady`.
/// `RuntimeReady` is there if the agent injects.
nlohmann::json fabric_status(const Hardware& hardware, std::string_view agent_version,
                             const std::vector<Finding>& findings = {},
                             const std::optional<Summary>& runtime = std::nullopt);

/// Adds the latest measured links, newest first, as many as fit.
void add_links(nlohmann::json& status, const std::vector<Link>& links);

/// True if they are equal apart from times.
bool same_fabric(const nlohmann::json& a, const nlohmann::json& b);

/// Adds the times: observedTime is `now`. A condition with an unchanged status keeps its
/// lastTransitionTime from `before`.
void stamp_times(nlohmann::json& status, const nlohmann::json& before, WallTime now);

/// The object without its status: name, and owner reference to the Node with this UID.
nlohmann::json fabric_object(std::string_view node_name, std::string_view node_uid);

/// An owner reference to a Node, for NodeFabric and Lease.
nlohmann::json node_owner(std::string_view node_name, std::string_view node_uid);

}  // namespace paceline::agent
