// SPDX-License-Identifier: Apache-2.0
#include "operator/apply/merge_diff.hpp"

namespace paceline::apply {

using nlohmann::json;

json merge_diff(const json& before, const json& after) {
  json patch = json::object();
  for (const auto& [key, value] : after.items()) {
    const auto old = before.find(key);
    if (old == before.end()) {
      patch[key] = value;
    } else if (*old != value) {
      patch[key] = old->is_object() && value.is_object() ? merge_diff(*old, value) : value;
    }
  }
  for (const auto& [key, value] : before.items()) {
    if (!after.contains(key)) patch[key] = nullptr;
  }
  return patch;
}

}  // namespace paceline::apply
