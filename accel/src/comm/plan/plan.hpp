// SPDX-License-Identifier: Apache-2.0
// The topology of a communicator and its plan for all-reduces: the algorithm and chunk size for
// each size, and the order of ranks. Together they decide the order of every addition, and so the
// bits. A plan prints as one line, which users pass back as `plan=` to repeat it. Text after # is
// for readers.
//
// Ownership: values. Threads: immutable once made. Failure: a text that names the key, the value
// and what to write instead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <string>
#include <vector>

namespace paceline::comm {

enum class Algorithm : std::uint8_t { kAuto, kFlat, kHierarchical, kDoubling, kTree };
// For arrays so small that the number of steps matters more than the bytes.
inline bool is_latency_bound(Algorithm algorithm) {
  return algorithm == Algorithm::kDoubling || algorithm == Algorithm::kTree;
}

// How ranks of one host pass data.
enum class Memory : std::uint8_t { kAuto, kTcp };
// How hosts pass data.
enum class Transport : std::uint8_t { kAuto, kTcp, kRdma };

struct Way {
  Algorithm algorithm = Algorithm::kAuto;
  std::uint64_t chunk = 1UL << 20;  // in bytes; for hierarchical allreduces
  // Connections of a hop that a transfer around a ring uses; 0: all.
  std::uint32_t flows = 0;

  bool operator==(const Way&) const = default;
};

// The way for arrays of `from` bytes and more.
struct Choice {
  std::uint64_t from = 0;
  Way way;

  bool operator==(const Choice&) const = default;
};

struct Plan {
  Algorithm algorithm = Algorithm::kAuto;
  std::uint64_t chunk = 1UL << 20;  // in bytes; the most that a choice may have
  std::vector<Choice> choices;      // ascending from 0, or empty: one way for all sizes
  // TCP connections of each hop between hosts, and the most that a choice may have; 0: not set.
  std::uint32_t flows = 0;
  Memory memory = Memory::kAuto;
  Transport transport = Transport::kAuto;
  // All ranks in ring order. Empty: the default, hosts by their first rank and ranks ascending.
  std::vector<std::uint32_t> order;
};

inline constexpr std::uint64_t kLeastChunk = 4096;
inline constexpr std::uint64_t kMostChunk = 256UL << 20;
inline constexpr std::uint32_t kMostFlows = 16;

std::expected<Plan, std::string> parse_plan(const std::string& text, std::uint32_t ranks);
std::string print_plan(const Plan& plan);
// "0:flat@1,65536:hierarchical/262144". The number after @ is the flows; without it all are used.
std::expected<std::vector<Choice>, std::string> parse_choices(const std::string& text,
                                                              std::uint64_t most_chunk);
std::string print_choices(const std::vector<Choice>& choices);
// Whether a communicator of this plan supports all of these choices.
bool can_go(const Plan& plan, const std::vector<Choice>& choices);
Way way_of(const Plan& plan, std::uint64_t bytes);

struct Topology {
  std::uint32_t rank = 0;
  std::vector<std::uint32_t> order;                // of the ring
  std::uint32_t position = 0;                      // this rank's place in `order`
  std::vector<std::vector<std::uint32_t>> groups;  // the ranks of each host, in order
  std::uint32_t group = 0;                         // this rank's group
  std::uint32_t local = 0;                         // this rank's place in its group
  std::uint32_t channels =
      1;  // rings across hosts; each of the local ranks 0…channels-1 of every host has one

  std::uint32_t ranks() const { return static_cast<std::uint32_t>(order.size()); }
  std::uint32_t hosts() const { return static_cast<std::uint32_t>(groups.size()); }
  const std::vector<std::uint32_t>& mates() const { return groups[group]; }
  bool has_channel() const { return hosts() > 1 && local < channels; }
  std::uint32_t group_of(std::uint32_t rank) const;
};

// `hosts` has each rank's host by name. Fills in the plan's order and algorithm.
Topology arrange(Plan& plan, const std::vector<std::string>& hosts, std::uint32_t rank);

}  // namespace paceline::comm
