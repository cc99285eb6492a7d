// SPDX-License-Identifier: Apache-2.0
// The findings of the checks condensed to what a scheduler and a person at a distance need: can
// GPUs of this node be reached by its NICs, and if not, which check says so first. Names devices,
// never measurements, so that an unchanged node is an unchanged text.
//
// Pure. Nothing fails.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/checks/check.hpp"

namespace paceline::agent {

struct Summary {
  std::optional<bool> good;  // absent: nothing fails, but it is not proved
  std::string reason;        // the id of the first check that fails; else a word
  std::string message;
  bool operator==(const Summary&) const = default;
};

/// Of a node with accelerators. True takes a registration that was tried: settings alone prove
/// nothing.
Summary gpu_direct_ready(const std::vector<Finding>& findings);

/// The first check of the NVLink fabric that fails; absent when none does.
std::optional<Summary> fabric_trouble(const std::vector<Finding>& findings);

}  // namespace paceline::agent
