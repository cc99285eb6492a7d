// SPDX-License-Identifier: Apache-2.0
// Reads JSON that may have any shape: what is absent or of another type reads as nothing. Pure.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace paceline::cli::lenient {

/// null if there is none.
inline const nlohmann::json& member(const nlohmann::json& object, const char* key) {
  static const nlohmann::json kNothing;
  if (!object.is_object()) return kNothing;
  const auto found = object.find(key);
  return found == object.end() ? kNothing : *found;
}

inline std::string text(const nlohmann::json& object, const char* key) {
  const nlohmann::json& value = member(object, key);
  return value.is_string() ? value.get<std::string>() : std::string();
}

}  // namespace paceline::cli::lenient
