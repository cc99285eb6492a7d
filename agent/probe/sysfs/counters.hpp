// SPDX-License-Identifier: Apache-2.0
// Counters of RDMA ports and network devices since their drivers were loaded, as the kernel shows
// them. One table lists each file and its metric. The agent exports them to Prometheus; the checks
// compare error counters.
//
// Plain values, read in one call below a Root. Thread-safe for different Root values. A counter
// that a device does not have, or that is no number, has no reading; it never reads as 0.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "agent/probe/hardware/hardware.hpp"
#include "agent/probe/sysfs/root.hpp"

namespace paceline::agent {

struct CounterKind {
  enum class Of : std::uint8_t { kRdmaPort, kNic };
  Of of;
  const char* file;  // below the port's or the network device's folder
  std::string_view metric;
  // distinguishes this counter from others of the same metric; empty if it is the only one
  std::string_view label;
  std::string_view value;
  unsigned unit;  // how many base units of the metric are one unit of the kernel
  std::string_view help;
};

/// The kinds of one metric are adjacent.
std::span<const CounterKind> counter_kinds();

struct CounterReading {
  const CounterKind* kind;
  std::string nic;
  int port = 0;  // for RDMA ports only
  std::uint64_t value = 0;
};

/// Reads at most 64 RDMA devices and 64 network devices, in the order of the table.
std::vector<CounterReading> read_device_counters(const Root& root, const Hardware& hardware);

}  // namespace paceline::agent
