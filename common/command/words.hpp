// SPDX-License-Identifier: Apache-2.0
// Words of a command. Pure.
#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/error.hpp"

namespace paceline::frameworks {

/// The last part of a path.
inline std::string base_name(const std::string& path) {
  return path.substr(path.find_last_of('/') + 1);
}

/// The number that the whole text is; nullopt if it is none.
inline std::optional<int> whole_number(const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

inline constexpr std::string_view kPassthroughRemedy =
    "or set spec.framework.launcher: Passthrough to keep it as one process per replica";

/// A command that says otherwise than the job.
inline std::unexpected<Error> contradiction(std::string what) {
  return fail(Code::kInvalid, Origin::kConfig, std::move(what));
}

}  // namespace paceline::frameworks
