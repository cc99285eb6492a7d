// SPDX-License-Identifier: Apache-2.0
// One row of the tests of the checks: a machine, a change to it, and the expected result of the
// check. Plain values.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
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
inline constexpr const char* kRootPorts = "kvm-root-ports";
inline constexpr const char* kXe9680 = "xe9680-spare-ports";
inline constexpr const char* kEfa = "aws-p5en-half";

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

using Change = std::function<void(const NodeTree&)>;

inline Change put(std::string file, std::string text) {
  return [=](const NodeTree& tree) { tree.write(file, text); };
}
inline Change drop(std::string file) {
  return [=](const NodeTree& tree) { tree.remove(file); };
}
inline std::string pci_file(const std::string& address, const std::string& name) {
  return "sys/bus/pci/devices/" + address + "/" + name;
}
/// As the kernel shows it to a process without privilege.
Change short_config(const std::string& address);
/// An RDMA device for the cloud's machine, which has none.
Change give_nic(bool ats);

inline EarlierCounters an_hour_ago(const std::string& name, std::uint64_t value) {
  return {std::chrono::hours(1), {{name, value}}};
}

inline const std::string kPort3 = "sys/class/infiniband/mlx5_3/ports/1/";
inline const std::string kNet3 = "sys/class/net/eth3/";
inline const std::string kNvidiaVersion = "proc/driver/nvidia/version";

// The rows, by subject.
std::vector<CheckCase> registration_cases();  // registration_cases.cpp
std::vector<CheckCase> bus_cases();           // bus_cases.cpp
std::vector<CheckCase> placement_cases();     // bus_cases.cpp
std::vector<CheckCase> port_cases();          // port_cases.cpp
std::vector<CheckCase> gpu_cases();           // gpu_cases.cpp
std::vector<CheckCase> live_cases();          // live_cases.cpp: reports of paceline-probe

/// The findings of a machine, after its hardware was altered.
std::vector<Finding> findings_of(const NodeTree& tree, std::string_view fixture,
                                 const std::function<void(Hardware&)>& alter = {},
                                 std::optional<EarlierCounters> earlier = {},
                                 std::optional<Registrations> registrations = {});

}  // namespace paceline::agent
