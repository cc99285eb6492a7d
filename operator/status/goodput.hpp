// SPDX-License-Identifier: Apache-2.0
// status.goodput: what a job's time was used for. Rank 0's launcher accounts; the operator keeps
// the last report and hands it to the job's next pod. Reports come from containers that run users'
// code, so they are read leniently, and never shorten the account. Pure.
#pragma once

#include <chrono>

#include <nlohmann/json.hpp>

#include "common/base/clock.hpp"

namespace paceline::status {

/// The report's `goodput` in the CRD's shape, in whole seconds; null if there is none. `seconds` is
/// the sum of useful time and losses, also if the report says otherwise.
nlohmann::json goodput_of(const nlohmann::json& source);

/// What status keeps of a report read at `as_of`: `kept`, unless the report covers more time. So a
/// report that is read twice changes nothing.
nlohmann::json longer_goodput(const nlohmann::json& kept, const nlohmann::json& reported,
                              WallTime as_of);

/// The job was suspended for that long: the next pod does not count it.
nlohmann::json goodput_after_pause(nlohmann::json kept, std::chrono::nanoseconds pause);

}  // namespace paceline::status
