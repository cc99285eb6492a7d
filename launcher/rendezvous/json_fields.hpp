// SPDX-License-Identifier: Apache-2.0
// Reads typed, bounded fields from JSON that an untrusted peer may have written. The message
// parsers use it. Throws nothing; remembers the first wrong field.
//
// Borrows the JSON. Not thread-safe.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace paceline::rendezvous {

class Fields {
 public:
  /// `problem` receives the first problem; readers of nested objects share it.
  Fields(const nlohmann::json& object, std::string& problem) : object_(object), problem_(problem) {
    if (!object.is_object()) note("the message", "is not an object");
  }

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
    if (problem_.empty()) problem_ = std::string(key) + " " + std::string(what);
  }

 private:
  const nlohmann::json& object_;
  std::string& problem_;
};

}  // namespace paceline::rendezvous
