// SPDX-License-Identifier: Apache-2.0
// The operator's own metrics in the Prometheus text format, built anew for every scrape. Pure and
// thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/kube/control/work_queue.hpp"
#include "operator/apply/controller.hpp"
#include "operator/service/api_calls.hpp"
#include "operator/service/waiting.hpp"

namespace paceline {

struct OperatorState {
  apply::Counters counters;
  bool leading = false;
  std::size_t queue_depth = 0;
  std::vector<std::pair<std::string_view, std::size_t>> cached;  // objects by resource
  std::uint64_t events_dropped = 0;
  Waiting waiting;
  ApiCalls::Counts calls;
};

/// Fills in all but `leading`, `events_dropped` and `calls`.
OperatorState state_of(const apply::Controller& controller, const apply::Stores& stores,
                       const kube::WorkQueue& queue);

std::string operator_metrics(const OperatorState& state);

}  // namespace paceline
