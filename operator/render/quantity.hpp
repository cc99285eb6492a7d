// SPDX-License-Identifier: Apache-2.0
// Amounts of resources as Kubernetes writes them. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace paceline::render {

/// By name, in thousandths.
using Amounts = std::vector<std::pair<std::string, std::int64_t>>;

inline std::string quantity(std::int64_t milli) {
  return milli % 1000 == 0 ? std::to_string(milli / 1000) : std::to_string(milli) + "m";
}

/// {"cpu": "500m"}, without those that are 0.
inline nlohmann::json quantities(const Amounts& amounts) {
  nlohmann::json object = nlohmann::json::object();
  for (const auto& [name, milli] : amounts) {
    if (milli > 0) object[name] = quantity(milli);
  }
  return object;
}

}  // namespace paceline::render
