// SPDX-License-Identifier: Apache-2.0
#include "operator/api/features/compression.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <span>

namespace paceline::api {
namespace {

struct Setting {
  std::string_view field;  // of the object
  std::string_view key;    // in the text
  int least;               // 0: a share below 1, with six decimals
};

struct Way {
  std::string_view member;  // of the object
  std::string_view name;    // in the text
  std::span<const Setting> settings;
};

constexpr std::string_view kField = "compression";
constexpr int kMost = 999'999'999;
constexpr std::size_t kRatioBytes = 8;  // "0." and six decimals
constexpr Setting kStart{"startStep", "start", 2};
constexpr std::array<Setting, 1> kOfAll{kStart};
constexpr std::array<Setting, 2> kOfTopK{{{"ratio", "ratio", 0}, kStart}};
constexpr std::array<Setting, 2> kOfPowerSgd{{{"rank", "rank", 1}, kStart}};
constexpr std::array<Way, 6> kWays{{{"disabled", "Disabled", {}},
                                    {"fp16", "FP16", kOfAll},
                                    {"bf16", "BF16", kOfAll},
                                    {"int8", "Int8", kOfAll},
                                    {"topK", "TopK", kOfTopK},
                                    {"powerSGD", "PowerSGD", kOfPowerSgd}}};
constexpr const char* kRemedy =
    "write exactly one of disabled, fp16, bf16, int8, topK and powerSGD, such as "
    "{powerSGD: {rank: 1, startStep: 1000}}";

/// One share has one spelling, so that equal values are equal texts.
bool is_share(std::string_view text) {
  return text.starts_with("0.") && text.size() > 2 && text.back() != '0' &&
         std::ranges::all_of(text.substr(2), [](char c) { return c >= '0' && c <= '9'; });
}

std::optional<std::string> read_setting(ObjectReader& reader, const Setting& setting) {
  if (setting.least > 0) {
    const auto number = reader.integer(setting.field, setting.least, kMost);
    return number ? std::optional(std::to_string(*number)) : std::nullopt;
  }
  auto text = reader.string(setting.field, kRatioBytes);
  if (text && !is_share(*text)) {
    reader.error(setting.field, reader.find(setting.field), "is no share of the values",
                 "write a number from 0.000001 and below 1 in quotes, such as \"0.01\"");
  }
  return text;
}

std::string read_way(ObjectReader reader, const Way& way) {
  std::string text(way.name);
  char separator = ':';
  for (const Setting& setting : way.settings) {
    const auto value = read_setting(reader, setting);
    if (!value) continue;
    text += separator;
    text += std::string(setting.key) + "=" + *value;
    separator = ',';
  }
  reader.finish();
  return text;
}

}  // namespace

std::optional<std::string> read_compression(ObjectReader& acceleration) {
  const nlohmann::json* value = acceleration.find(kField);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) {
    acceleration.error(kField, value, "is no way to compress", kRemedy);
    return std::nullopt;
  }
  ObjectReader ways = acceleration.inside(kField);
  std::optional<std::string> text;
  int named = 0;
  for (const Way& way : kWays) {
    if (ways.find(way.member) == nullptr) continue;
    ++named;
    text = read_way(ways.inside(way.member), way);
  }
  ways.finish();
  if (named != 1) {
    acceleration.error(kField, value, named == 0 ? "names no way" : "names several ways", kRemedy);
    return std::nullopt;
  }
  return text;
}

std::optional<std::string> compression_in(const nlohmann::json& acceleration) {
  FieldErrors errors;
  ObjectReader reader(acceleration, "status.acceleration", errors);
  auto text = read_compression(reader);
  return errors.empty() ? text : std::nullopt;
}

nlohmann::json compression_object(std::string_view text) {
  const std::string_view name = text.substr(0, text.find(':'));
  const auto way = std::ranges::find(kWays, name, &Way::name);
  if (way == kWays.end()) return nlohmann::json::object();
  nlohmann::json settings = nlohmann::json::object();
  text.remove_prefix(std::min(text.size(), name.size() + 1));
  while (!text.empty()) {
    const std::string_view one = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), one.size() + 1));
    const std::string_view key = one.substr(0, one.find('='));
    const std::string_view value = one.substr(std::min(one.size(), key.size() + 1));
    const auto setting = std::ranges::find(way->settings, key, &Setting::key);
    if (setting == way->settings.end()) continue;
    nlohmann::json& field = settings[std::string(setting->field)];
    if (setting->least == 0) {
      field = value;
    } else {
      int number = 0;
      std::from_chars(value.data(), value.data() + value.size(), number);
      field = number;
    }
  }
  return {{std::string(way->member), std::move(settings)}};
}

}  // namespace paceline::api
