// SPDX-License-Identifier: Apache-2.0
// The only header that includes spdlog. Include it before all other headers: fmt 9 clashes over
// std::byte with headers that include simdjson, CLI11 or Boost.
#pragma once

#include <spdlog/formatter.h>
#include <spdlog/spdlog.h>

#include <string>
#include <utility>

namespace paceline {

/// Writes a line about one object of the cluster, such as "team/llm". Lines in JSON name it in a
/// field of its own (common/service/logging.hpp). Thread-safe.
template <typename... Args>
void log_about(const std::string& object, spdlog::level::level_enum level,
               spdlog::format_string_t<Args...> format, Args&&... args) {
  const auto log = spdlog::default_logger();
  // A formatter sees the name of the logger beside the message, and nothing else of the caller's.
  spdlog::logger about(object, log->sinks().begin(), log->sinks().end());
  about.set_level(log->level());
  about.log(level, format, std::forward<Args>(args)...);
}

}  // namespace paceline
