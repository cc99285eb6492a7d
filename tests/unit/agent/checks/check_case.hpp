// SPDX-License-Identifier: Apache-2.0
// One row of the tests of the checks: a machine, a change to it, and the expected result of the
// check. Plain values.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "agent/checks/check.hpp"
#include "testing/node_tree.hpp"

namespace paceline::agent {

inline constexpr const char* kH100 = "dgx-h100-like";
inline constexpr const char* kA100 = "dgx-a100-like";
inline constexpr const char* kBroken = "dgx-h100-broken";
inline constexpr const char* kSockets = "two-socket-pcie";
inline constexpr const char* kTray = "gb200-like";
inline constexpr const char* kVirtual = "cloud-vm-gpu";
inline constexpr const char* kVirtualRdma = "cloud-vm-rdma";

/// A fixture, the change made before it is read, and what the check then says of a subject.
struct CheckCase {
  const char* id;
  Verdict verdict;
  const char* evidence;
  const char* fixture;
  std::function<void(const NodeTree&)> change = [](const NodeTree&) {};
  std::function<void(Hardware&)> alter = [](Hardware&) {};
  std::optional<EarlierCounters> earlier = {};
  std::optional<Registrations> registrations = {};
};

inline void PrintTo(const CheckCase& row, std::ostream* out) {
  *out << row.id << " " << to_string(row.verdict) << " \"" << row.evidence << "\" on "
       << row.fixture;
}

/// Rows about reports of paceline-probe: live_cases.cpp.
std::vector<CheckCase> live_cases();

}  // namespace paceline::agent
