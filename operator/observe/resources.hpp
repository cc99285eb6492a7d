// SPDX-License-Identifier: Apache-2.0
// Amounts of resources in thousandths of their unit, so that CPU needs no fractions: CPU, memory,
// pods, blocks of host ports, and by name all other resources of a node. Values; nothing fails. An
// absent amount counts as zero.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace paceline::observe {

/// What `lacking` calls blocks of ports.
inline constexpr const char* kHostPorts = "host ports";

struct Resources {
  std::int64_t cpu = 0;
  std::int64_t memory = 0;
  std::int64_t pods = 0;
  std::int64_t port_blocks = 0;  // common/contract/host_ports.hpp
  std::vector<std::pair<std::string, std::int64_t>>
      other;  // sorted by name; ephemeral-storage, hugepages, accelerators

  std::int64_t get(std::string_view name) const;
  void set(std::string_view name, std::int64_t milli);
  void add(const Resources& more);
  void subtract(const Resources& less);
  /// For each name the larger of the two amounts.
  void raise_to(const Resources& floor);
  /// For each name that it has, the smaller of the two amounts.
  void lower_to(const Resources& limit);

  /// CPU, memory and the others by name, without pods and ports.
  std::vector<std::pair<std::string, std::int64_t>> amounts() const;

  /// How often `need` fits, at most `limit`.
  int times(const Resources& need, int limit) const;
  /// The first resource of which `need` asks more than this has; empty if it fits.
  std::string lacking(const Resources& need) const;
  bool operator==(const Resources&) const = default;
};

}  // namespace paceline::observe
