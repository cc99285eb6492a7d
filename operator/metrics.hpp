// SPDX-License-Identifier: Apache-2.0
// The operator's own metrics in the Prometheus text format, built anew for every scrape. Pure and
// thread-safe.
#pragma once

#include <string>

#include "operator/apply/controller.hpp"

namespace paceline {

struct OperatorState {
  apply::Counters counters;
  bool leading = false;
  std::size_t queue_depth = 0;
  std::size_t cached_pods = 0;
  std::size_t cached_nodes = 0;
  std::uint64_t events_dropped = 0;
};

std::string operator_metrics(const OperatorState& state);

}  // namespace paceline
