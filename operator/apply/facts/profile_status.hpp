// SPDX-License-Identifier: Apache-2.0
// The status of a RuntimeProfile: whether jobs can use it. Pure.
#pragma once

#include <nlohmann/json.hpp>

#include "common/base/clock.hpp"
#include "operator/observe/views.hpp"

namespace paceline::apply {

/// Equal to `profile.status` if that is right already.
nlohmann::json status_of(const observe::ProfileView& profile, WallTime now);

}  // namespace paceline::apply
