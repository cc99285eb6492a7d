// SPDX-License-Identifier: Apache-2.0
// What RDMA ports and network devices have counted since their drivers were loaded, as the kernel
// shows it: one table of what is read and what it is called.
//
// Plain values, read in one go below a Root. Thread-safe for different Root values. Failure looks
// like absence: a counter that a device does not have, or that is no number, has no reading; it is
// never 0.
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
  // what tells this counter from the metric's others; empty: it is the only one
  std::string_view label;
  std::string_view value;
  unsigned unit;  // of the metric's base unit in one of the kernel's
  std::string_view help;
};

/// Kinds of one metric stand together.
std::span<const CounterKind> counter_kinds();

struct CounterReading {
  const CounterKind* kind;
  std::string nic;
  int port = 0;  // RDMA ports only
  std::uint64_t value = 0;
};

/// At most 64 RDMA devices and 64 network devices, in the order of the table.
std::vector<CounterReading> read_device_counters(const Root& root, const Hardware& hardware);

}  // namespace paceline::agent
