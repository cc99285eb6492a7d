// SPDX-License-Identifier: Apache-2.0
// ObjectReader: reads fields of one JSON object, records every problem with its path, and at the
// end reports unknown keys.
//
// The JSON value and the error list must outlive it. Not thread-safe.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "operator/api/field_error.hpp"

namespace paceline::api {

class ObjectReader {
 public:
  /// `value` may be any JSON. If it is not an object, one error is recorded and every field reads
  /// as absent.
  ObjectReader(const nlohmann::json& value, std::string path, FieldErrors& errors);

  /// The field, or null if it is absent or null.
  const nlohmann::json* find(std::string_view key);
  /// Like find, but records an error with `remedy` if the field is absent.
  const nlohmann::json* require(std::string_view key, std::string_view remedy);

  std::optional<std::string> string(std::string_view key, std::size_t max_bytes);
  std::optional<std::int64_t> integer(std::string_view key, std::int64_t min, std::int64_t max);
  std::optional<bool> boolean(std::string_view key);
  std::optional<std::chrono::nanoseconds> duration(std::string_view key);
  /// A reader of the field, which is there. If it is no object, one error is recorded.
  ObjectReader inside(std::string_view key);
  /// The index into `allowed` of the field's string.
  std::optional<std::size_t> one_of(std::string_view key,
                                    const std::vector<std::string_view>& allowed);

  /// Records an error for every key that was not read.
  void finish();

  std::string path(std::string_view key) const {
    return path_.empty() ? std::string(key) : path_ + "." + std::string(key);
  }
  void error(std::string_view key, const nlohmann::json* value, std::string problem,
             std::string remedy);

 private:
  const nlohmann::json* value_;
  std::string path_;
  FieldErrors& errors_;
  std::vector<std::string> asked_;
};

/// A value as an error prints it: compact JSON, at most 80 bytes.
std::string shown(const nlohmann::json& value);

}  // namespace paceline::api
