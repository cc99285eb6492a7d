// SPDX-License-Identifier: Apache-2.0
// What a measurement of the way to another node tells: n bytes take latency + n · seconds_per_byte
// in one direction (α and β), from round trips of several sizes, and how it is told to people and
// in the NodeFabric.
//
// Values and pure functions. A fit of too few sizes is absent; everything else has an answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/clock.hpp"

namespace paceline::agent {

/// The quickest round trip of messages of one size.
struct RoundTrip {
  std::uint64_t bytes = 0;
  double seconds = 0;
};

struct LinkFit {
  double latency_seconds = 0;
  double seconds_per_byte = 0;
};

struct Link {
  std::string peer;
  LinkFit fit;
  std::vector<RoundTrip> trips;
  std::uint64_t bytes = 0;  // in both directions together
  WallTime measured{};

  double bits_per_second() const { return 8 / fit.seconds_per_byte; }
};

/// Least squares of the relative errors: small messages tell the latency, large ones the bandwidth,
/// and neither drowns the other. Both values are above 0. Absent with fewer than three sizes.
std::optional<LinkFit> fit_link(const std::vector<RoundTrip>& trips);

/// As `/v1` and `paceline measure --json` tell it.
nlohmann::json link_json(const Link& link);

/// As the NodeFabric tells it: two digits, so that noise is not news.
nlohmann::json link_status(const Link& link);
/// The reverse, of whatever stands there; absent where it is no such entry.
std::optional<Link> read_link_status(const nlohmann::json& entry);

/// Whether a Node may be named so.
bool is_node_name(std::string_view name);

}  // namespace paceline::agent
