// SPDX-License-Identifier: Apache-2.0
#include "cli/convert/fields.hpp"

namespace paceline::cli {

Fields::Fields(const Json* value, std::string path, Notes& notes)
    : path_(std::move(path)), notes_(notes) {
  if (value == nullptr || value->is_null()) return;
  if (value->is_object()) {
    value_ = value;
  } else {
    notes_.drop(path_, value, "it is not an object", "write key: value pairs");
  }
}

const Json* Fields::take(std::string_view key) {
  read_.emplace(key);
  return member(value_, key);
}

const Json* Fields::wrong(std::string_view key, const Json& value, const char* expected) {
  notes_.drop(path(key), &value, std::string("it is not ") + expected, "correct it");
  return nullptr;
}

const Json* Fields::object(std::string_view key) {
  const Json* value = take(key);
  return value == nullptr || value->is_object() ? value : wrong(key, *value, "an object");
}

const Json* Fields::list(std::string_view key) {
  const Json* value = take(key);
  return value == nullptr || value->is_array() ? value : wrong(key, *value, "a list");
}

std::optional<std::string> Fields::text(std::string_view key) {
  const Json* value = take(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  wrong(key, *value, "a string");
  return std::nullopt;
}

std::optional<std::int64_t> Fields::integer(std::string_view key) {
  const Json* value = take(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_number_integer() && value->get<std::int64_t>() >= 0)
    return value->get<std::int64_t>();
  wrong(key, *value, "a whole number");
  return std::nullopt;
}

std::optional<bool> Fields::boolean(std::string_view key) {
  const Json* value = take(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  wrong(key, *value, "a boolean");
  return std::nullopt;
}

std::string Fields::seconds(std::string_view key) {
  const auto number = integer(key);
  return number ? duration_text(*number) : "";
}

void Fields::drop(std::string_view key, std::string_view reason, std::string remedy) {
  if (const Json* value = take(key)) notes_.drop(path(key), value, reason, std::move(remedy));
}

void Fields::finish() {
  if (value_ == nullptr) return;
  for (const auto& [key, value] : value_->items()) {
    if (value.is_null() || read_.contains(key)) continue;
    notes_.drop(path(key), &value, "paceline convert does not know this field",
                "if the job needs it, look for its like in the API reference");
  }
}

const Json* member(const Json* object, std::string_view key) {
  if (object == nullptr || !object->is_object()) return nullptr;
  const auto found = object->find(std::string(key));
  return found == object->end() || found->is_null() ? nullptr : &*found;
}

std::string text_of(const Json* value) {
  return value != nullptr && value->is_string() ? value->get<std::string>() : "";
}

std::vector<std::string> texts_of(const Json* list) {
  std::vector<std::string> texts;
  if (list == nullptr || !list->is_array()) return texts;
  for (const Json& text : *list) {
    if (text.is_string()) texts.push_back(text.get<std::string>());
  }
  return texts;
}

std::string duration_text(std::int64_t seconds) {
  constexpr std::int64_t kMinute = 60;
  constexpr std::int64_t kHour = 3600;
  if (seconds != 0 && seconds % kHour == 0) return std::to_string(seconds / kHour) + "h";
  if (seconds != 0 && seconds % kMinute == 0) return std::to_string(seconds / kMinute) + "m";
  return std::to_string(seconds) + "s";
}

}  // namespace paceline::cli
