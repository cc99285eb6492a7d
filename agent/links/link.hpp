// SPDX-License-Identifier: Apache-2.0
// The result of measuring the network to another node: n bytes take latency + n · seconds_per_byte
// in one direction (α and β), fitted to round trips of several sizes. Also its text for people and
// for the NodeFabric. `paceline measure` shows it.
//
// Values and pure functions. A fit of fewer than three sizes is nullopt.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/clock.hpp"

namespace paceline::agent {

/// The fastest round trip of messages of one size.
struct RoundTrip {
  std::uint64_t bytes = 0;
  double seconds = 0;
};

struct LinkFit {
  double latency_seconds = 0;
  double seconds_per_byte = 0;
};

/// What several connections got together, in each direction.
struct Flows {
  int count = 0;  // 0: not measured
  double bits_per_second = 0;
};

struct Link {
  std::string peer;
  LinkFit fit;
  Flows flows{};
  std::vector<RoundTrip> trips;
  std::uint64_t bytes = 0;  // of both directions together
  WallTime measured{};

  double bits_per_second() const { return 8 / fit.seconds_per_byte; }
};

/// Least squares of the relative errors, so that small messages determine the latency, large ones
/// the bandwidth, and neither dominates. Both results are above 0. nullopt for fewer than three
/// sizes.
std::optional<LinkFit> fit_link(const std::vector<RoundTrip>& trips);

/// The form of `/v1/links` and `paceline measure --json`.
nlohmann::json link_json(const Link& link);

/// The form in the NodeFabric, with two digits, so that noise causes no write.
nlohmann::json link_status(const Link& link);
/// Parses such an entry; nullopt for anything else.
std::optional<Link> read_link_status(const nlohmann::json& entry);

/// Whether this can be the name of a Node.
bool is_node_name(std::string_view name);

}  // namespace paceline::agent
