// SPDX-License-Identifier: Apache-2.0
// A span of the job's life and the ids of OpenTelemetry. Ids follow from the job's uid, so that all
// pods of a job write into one trace, and a new pod of node rank 0 continues it. Pure.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/clock.hpp"

namespace paceline::spans {

struct Span {
  std::string name;
  std::string id;        // 16 hexadecimal digits
  std::string parent{};  // the same; empty: none
  WallTime begin{};
  WallTime end{};
  std::vector<std::pair<std::string, std::string>> attributes{};
  std::string error{};  // empty: it went well
};

/// 32 hexadecimal digits: those of the uid, if it is a UUID.
std::string trace_id(std::string_view job_uid);
std::string span_id(std::string_view job_uid, std::string_view span);
std::string attempt_span(std::string_view job_uid, int attempt);

}  // namespace paceline::spans
