// SPDX-License-Identifier: Apache-2.0
#include "operator/api/compression.hpp"

#include <algorithm>
#include <array>

namespace paceline::api {
namespace {

bool digits(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

/// A whole number without leading zeros, of at most nine digits.
bool whole(std::string_view text) {
  return !text.empty() && text.size() <= 9 && text.front() != '0' && digits(text);
}

bool ratio(std::string_view text) {
  if (!text.starts_with("0.")) return false;
  text.remove_prefix(2);
  return !text.empty() && text.size() <= 6 && text.back() != '0' && digits(text);
}

struct Setting {
  std::string_view key;  // with its '='
  bool (*fits)(std::string_view value);
};

}  // namespace

bool is_compression(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  constexpr std::array<std::string_view, 5> kNames{"FP16", "BF16", "Int8", "TopK", "PowerSGD"};
  if (std::ranges::find(kNames, name) == kNames.end()) return false;
  if (colon == std::string_view::npos) return true;
  // In this order, each once at most: one way to write a thing.
  const Setting settings[] = {
      {"ratio=", [](std::string_view value) { return ratio(value); }},
      {"rank=", [](std::string_view value) { return whole(value); }},
      {"start=", [](std::string_view value) { return whole(value) && value != "1"; }},
  };
  std::string_view rest = text.substr(colon + 1);
  for (const Setting& setting : settings) {
    const bool takes =
        setting.key == "start=" || (setting.key == "ratio=" ? name == "TopK" : name == "PowerSGD");
    if (!takes || !rest.starts_with(setting.key)) continue;
    const std::size_t comma = rest.find(',');
    if (!setting.fits(rest.substr(setting.key.size(), comma - setting.key.size()))) return false;
    if (comma == std::string_view::npos) return true;
    rest.remove_prefix(comma + 1);
  }
  return false;
}

}  // namespace paceline::api
