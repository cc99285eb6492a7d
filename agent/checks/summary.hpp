// SPDX-License-Identifier: Apache-2.0
// Condenses the findings to one condition for the scheduler and for people: can the NICs reach the
// GPUs of this node, and if not, which check fails first. The NodeFabric's conditions hold the
// result. The text names devices but no measurements, so that it stays equal while the node is
// unchanged.
//
// Pure. Nothing fails.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/checks/check.hpp"

namespace paceline::agent {

struct Summary {
  std::optional<bool> good;  // nullopt: nothing fails, but it is not proved
  std::string reason;        // the id of the first failing check, else a word
  std::string message;
  bool operator==(const Summary&) const = default;
};

/// For a node with accelerators. True needs a registration that was tried, because settings alone
/// prove nothing.
Summary gpu_direct_ready(const std::vector<Finding>& findings);

/// The first failing check of the NVLink fabric; nullopt if none fails.
std::optional<Summary> fabric_trouble(const std::vector<Finding>& findings);

/// The first failing check of the GPUs themselves; nullopt if none fails.
std::optional<Summary> gpu_trouble(const std::vector<Finding>& findings);

}  // namespace paceline::agent
