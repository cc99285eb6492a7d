// SPDX-License-Identifier: Apache-2.0
// Pure.
#pragma once

#include <nlohmann/json.hpp>

namespace paceline::apply {

/// The merge patch (RFC 7386) that turns `before` into `after`.
nlohmann::json merge_diff(const nlohmann::json& before, const nlohmann::json& after);

}  // namespace paceline::apply
