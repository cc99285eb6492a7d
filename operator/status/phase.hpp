// SPDX-License-Identifier: Apache-2.0
// Conditions and what follows from them. Conditions are for programs; phase, reason and message are
// for people and computed from the conditions alone, by one pure function, so that they can never
// disagree.
#pragma once

#include <string>
#include <string_view>

#include "operator/api/status.hpp"

namespace paceline::status {

inline constexpr std::string_view kQuotaReserved = "QuotaReserved";
// of jobs that require something of their pods
inline constexpr std::string_view kPreflightPassed = "PreflightPassed";
inline constexpr std::string_view kPlaced = "Placed";
inline constexpr std::string_view kRunning = "Running";
inline constexpr std::string_view kRestarting = "Restarting";
inline constexpr std::string_view kSuspended = "Suspended";
inline constexpr std::string_view kSucceeded = "Succeeded";
inline constexpr std::string_view kFailed = "Failed";

/// Reason of Running=False between the first success of a replica and the job's: not a start.
inline constexpr std::string_view kCompleting = "Completing";

/// Sets a condition; its time moves only when its status does. Terminal conditions that are True
/// stay so. Messages are cut at 4 KiB.
void set_condition(api::JobStatus& status, std::string_view type, bool value,
                   std::string_view reason, std::string message, WallTime now);

/// Turns a condition False if it is there and True; never adds one.
void clear_condition(api::JobStatus& status, std::string_view type, std::string_view reason,
                     std::string message, WallTime now);

/// Fills in phase, reason and message from the conditions.
void compute_phase(api::JobStatus& status);

}  // namespace paceline::status
