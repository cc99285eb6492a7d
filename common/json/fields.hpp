// SPDX-License-Identifier: Apache-2.0
// JsonFields: reads typed, bounded fields of a JSON object that another program wrote. The first
// wrong field is remembered by name; later reads return defaults, so that a reader of many fields
// checks once, at the end. Nothing throws.
//
// Job files are read by operator/api/object_reader.hpp instead: a person wants to see all problems
// at once, each with its remedy. API objects are read by common/kube/api/json_reader.hpp, which
// treats absent fields as empty and copies nothing.
//
// Borrows the JSON and the problem. Not thread-safe.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/base/error.hpp"

namespace paceline {

class JsonFields {
 public:
  /// `problem` is shared by the readers of nested objects. `path` names this object in it
  /// ("ranks[2]"); empty for the document itself.
  JsonFields(const nlohmann::json& object, std::string& problem, std::string path = {})
      : object_(object), problem_(problem), path_(std::move(path)) {
    if (!object.is_object()) note("", "is not an object");
  }

  /// The first wrong field as an Error.
  Status status() const {
    if (problem_.empty()) return {};
    return fail(Code::kInvalid, Origin::kProtocol, problem_);
  }

  /// Null if the field is absent or null.
  const nlohmann::json* find(std::string_view key) const {
    if (!object_.is_object()) return nullptr;
    const auto field = object_.find(key);
    return field == object_.end() || field->is_null() ? nullptr : &*field;
  }

  std::string text(std::string_view key, std::size_t most = 512) {
    const nlohmann::json* field = find(key);
    if (field == nullptr || !field->is_string()) return note(key, "is not a string"), "";
    const auto& value = field->get_ref<const std::string&>();
    if (value.size() > most) return note(key, "is too long"), "";
    return value;
  }

  std::int64_t integer(std::string_view key, std::int64_t least, std::int64_t most) {
    const nlohmann::json* field = find(key);
    if (field == nullptr || !field->is_number_integer())
      return note(key, "is not an integer"), least;
    if (field->is_number_unsigned() &&
        field->get<std::uint64_t>() > static_cast<std::uint64_t>(most))
      return note(key, "is too large"), least;
    const auto value = field->get<std::int64_t>();
    if (value < least || value > most) return note(key, "is out of range"), least;
    return value;
  }

  std::optional<int> optional_integer(std::string_view key, std::int64_t least, std::int64_t most) {
    if (find(key) == nullptr) return std::nullopt;
    return static_cast<int>(integer(key, least, most));
  }

  /// Finite and not negative.
  double number(std::string_view key) {
    const nlohmann::json* field = find(key);
    if (field == nullptr || !field->is_number()) return note(key, "is not a number"), 0;
    const auto value = field->get<double>();
    if (!std::isfinite(value) || value < 0 || value > 1e18) return note(key, "is out of range"), 0;
    return value;
  }

  bool boolean(std::string_view key) {
    const nlohmann::json* field = find(key);
    if (field == nullptr || !field->is_boolean()) return note(key, "is not true or false"), false;
    return field->get<bool>();
  }

  const nlohmann::json& array(std::string_view key, std::size_t most) {
    static const nlohmann::json kEmpty = nlohmann::json::array();
    const nlohmann::json* field = find(key);
    if (field == nullptr || !field->is_array()) return note(key, "is not a list"), kEmpty;
    if (field->size() > most) return note(key, "has too many entries"), kEmpty;
    return *field;
  }

  void note(std::string_view key, std::string_view what) {
    if (!problem_.empty()) return;
    problem_ = path_;
    if (!path_.empty() && !key.empty()) problem_ += '.';
    problem_ += key;
    if (problem_.empty()) problem_ = "the message";
    problem_.append(" ").append(what);
  }

 private:
  const nlohmann::json& object_;
  std::string& problem_;
  const std::string path_;
};

}  // namespace paceline
