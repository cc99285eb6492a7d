// SPDX-License-Identifier: Apache-2.0
#include "operator/api/object_reader.hpp"

#include <algorithm>

#include "common/base/duration.hpp"

namespace paceline::api {
namespace {

const nlohmann::json& empty_object() {
  static const nlohmann::json kEmpty = nlohmann::json::object();
  return kEmpty;
}

}  // namespace

std::string shown(const nlohmann::json& value) {
  std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (text.size() > 80) {
    std::size_t cut = 77;
    while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0U) == 0x80U)
      --cut;  // do not cut inside a UTF-8 character
    text.resize(cut);
    text += "…";
  }
  return text;
}

ObjectReader::ObjectReader(const nlohmann::json& value, std::string path, FieldErrors& errors)
    : value_(&value), path_(std::move(path)), errors_(errors) {
  if (!value.is_object()) {
    errors_.push_back({path_.empty() ? "document" : path_, shown(value), "is not an object",
                       "write key: value pairs"});
    value_ = &empty_object();
  }
}

const nlohmann::json* ObjectReader::find(std::string_view key) {
  if (std::find(asked_.begin(), asked_.end(), key) == asked_.end()) asked_.emplace_back(key);
  const auto it = value_->find(std::string(key));
  return it == value_->end() || it->is_null() ? nullptr : &*it;
}

const nlohmann::json* ObjectReader::require(std::string_view key, std::string_view remedy) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) error(key, nullptr, "is required", std::string(remedy));
  return value;
}

std::optional<std::string> ObjectReader::string(std::string_view key, std::size_t max_bytes) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) {
    error(key, value, "is not a string", "put it in quotes");
    return std::nullopt;
  }
  std::string text = value->get<std::string>();
  if (text.size() > max_bytes) {
    error(key, value, "is too long", "write at most " + std::to_string(max_bytes) + " bytes");
    return std::nullopt;
  }
  return text;
}

std::optional<std::int64_t> ObjectReader::integer(std::string_view key, std::int64_t min,
                                                  std::int64_t max) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const std::string remedy =
      "write a whole number from " + std::to_string(min) + " to " + std::to_string(max);
  if (!value->is_number_integer()) {
    error(key, value, "is not a whole number", remedy);
    return std::nullopt;
  }
  // A value above int64 is stored as unsigned and would wrap.
  const bool huge =
      value->is_number_unsigned() && value->get<std::uint64_t>() > static_cast<std::uint64_t>(max);
  const std::int64_t number = huge ? max : value->get<std::int64_t>();
  if (huge || number < min || number > max) {
    error(key, value, "is out of range", remedy);
    return std::nullopt;
  }
  return number;
}

std::optional<bool> ObjectReader::boolean(std::string_view key) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) {
    error(key, value, "is not a boolean", "write true or false, without quotes");
    return std::nullopt;
  }
  return value->get<bool>();
}

std::optional<std::chrono::nanoseconds> ObjectReader::duration(std::string_view key) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const std::string remedy = "write a duration such as 30s, 2m or 1h30m";
  if (!value->is_string()) {
    error(key, value, "is not a duration", remedy);
    return std::nullopt;
  }
  const auto parsed = parse_duration(value->get<std::string>());
  if (!parsed) {
    error(key, value, "is not a duration", remedy);
    return std::nullopt;
  }
  return *parsed;
}

std::optional<std::size_t> ObjectReader::one_of(std::string_view key,
                                                const std::vector<std::string_view>& allowed) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) {
    const auto it = std::find(allowed.begin(), allowed.end(), value->get_ref<const std::string&>());
    if (it != allowed.end()) return static_cast<std::size_t>(it - allowed.begin());
  }
  std::string remedy = "write one of ";
  for (std::size_t i = 0; i < allowed.size(); ++i) {
    if (i > 0) remedy += ", ";
    remedy += allowed[i];
  }
  error(key, value, "is not known", remedy);
  return std::nullopt;
}

ObjectReader ObjectReader::inside(std::string_view key) { return {*find(key), path(key), errors_}; }

void ObjectReader::finish() {
  for (const auto& [key, value] : value_->items()) {
    if (value.is_null() || std::find(asked_.begin(), asked_.end(), key) != asked_.end()) continue;
    std::string known;
    for (const std::string& name : asked_) known += (known.empty() ? "" : ", ") + name;
    error(key, nullptr, "is an unknown field",
          known.empty() ? "remove it" : "remove it, or write one of " + known);
    errors_.back().unknown = true;
  }
}

void ObjectReader::error(std::string_view key, const nlohmann::json* value, std::string problem,
                         std::string remedy) {
  errors_.push_back(
      {path(key), value == nullptr ? "" : shown(*value), std::move(problem), std::move(remedy)});
}

}  // namespace paceline::api
