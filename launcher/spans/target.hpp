// SPDX-License-Identifier: Apache-2.0
// Where spans go, by the standard variables of OpenTelemetry (OTEL_*, TRACEPARENT).
//
// Pure. Failure is an Error that names the variable, its value and what to write; the job runs
// without spans then.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "launcher/config.hpp"
#include "launcher/frameworks/environment.hpp"

namespace paceline::spans {

using Pairs = std::vector<std::pair<std::string, std::string>>;

struct Target {
  std::string host{};  // name or address
  std::uint16_t port = 0;
  std::string path{};
  Pairs headers{};
  std::chrono::milliseconds timeout = std::chrono::seconds(10);
  Pairs resource{};  // attributes of the job and of this pod
  std::string trace_id{};
  std::string parent{};  // the span that the job belongs to; empty: none
};

/// nullopt: no collector is named, or spans are turned off.
Result<std::optional<Target>> read_target(const frameworks::Environment& environment,
                                          const launcher::Config& config);

/// Sets TRACEPARENT, so that spans of the program belong to this attempt.
void tell(const Target& target, const std::string& job_uid, int attempt,
          std::vector<std::string>& variables);

}  // namespace paceline::spans
