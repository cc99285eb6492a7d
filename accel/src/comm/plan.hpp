// SPDX-License-Identifier: Apache-2.0
// Who sits where, and how an allreduce goes: the algorithm, the size of its chunks and the order of ranks, which together decide
// the order of every addition. Printed as one line that can be given back to pin it.
//
// Ownership: values. Threads: immutable once made. Failure: a text that names the key, the value and the remedy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <string>
#include <vector>

namespace paceline::comm {

enum class Algorithm : std::uint8_t { kAuto, kFlat, kHierarchical };

struct Plan {
  Algorithm algorithm = Algorithm::kAuto;
  std::uint64_t chunk = 1UL << 20;   // bytes
  std::vector<std::uint32_t> order;  // all ranks, or empty for the default: hosts by their first rank, ranks ascending
};

inline constexpr std::uint64_t kLeastChunk = 4096;
inline constexpr std::uint64_t kMostChunk = 256UL << 20;

std::expected<Plan, std::string> parse_plan(const std::string& text, std::uint32_t ranks);
std::string print_plan(const Plan& plan);

struct Topology {
  std::uint32_t rank = 0;
  std::vector<std::uint32_t> order;                // the ring
  std::uint32_t position = 0;                      // of this rank in it
  std::vector<std::vector<std::uint32_t>> groups;  // the ranks of each host, in order
  std::uint32_t group = 0;                         // this rank's
  std::uint32_t local = 0;                         // its place there
  std::uint32_t lanes = 1;  // rings across hosts: local ranks 0…lanes-1 of every host have one each

  std::uint32_t ranks() const { return static_cast<std::uint32_t>(order.size()); }
  std::uint32_t hosts() const { return static_cast<std::uint32_t>(groups.size()); }
  const std::vector<std::uint32_t>& mates() const { return groups[group]; }
  bool has_lane() const { return hosts() > 1 && local < lanes; }
  std::uint32_t group_of(std::uint32_t rank) const;
};

// `hosts`: of each rank, by name. Fills in the plan's order and its algorithm.
Topology arrange(Plan& plan, const std::vector<std::string>& hosts, std::uint32_t rank);

}  // namespace paceline::comm
