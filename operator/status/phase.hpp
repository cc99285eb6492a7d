// SPDX-License-Identifier: Apache-2.0
// Conditions, and the phase computed from them. Conditions are for programs. Phase, reason and
// message are for people; one pure function computes them from the conditions, so that they never
// disagree.
#pragma once

#include <string>
#include <string_view>

#include "operator/api/status.hpp"

namespace paceline::status {

inline constexpr std::string_view kQuotaReserved = "QuotaReserved";
// only of jobs with a preflight
inline constexpr std::string_view kPreflightPassed = "PreflightPassed";
// True since a queued job waits for the part of the network that it prefers: it could run elsewhere
inline constexpr std::string_view kCouldRun = "CouldRun";
inline constexpr std::string_view kPlaced = "Placed";
inline constexpr std::string_view kRunning = "Running";
inline constexpr std::string_view kRestarting = "Restarting";
// lost replicas that fail alone are replaced, and the others train on: the phase stays Running
inline constexpr std::string_view kReplacing = "Replacing";
inline constexpr std::string_view kSuspended = "Suspended";
inline constexpr std::string_view kSucceeded = "Succeeded";
inline constexpr std::string_view kFailed = "Failed";

/// The reason of Running=False after the first replica succeeded and before the job did: the job is
/// ending, not starting.
inline constexpr std::string_view kCompleting = "Completing";

/// The message, or its first 4 KiB: the API server takes no status with a longer one. Bytes that
/// are not UTF-8 are replaced, since it takes none with those either.
std::string shortened(std::string message);

/// Sets a condition. Its time changes only when its status does. Terminal conditions that are True
/// stay True. Messages are cut at 4 KiB.
void set_condition(api::JobStatus& status, std::string_view type, bool value,
                   std::string_view reason, std::string message, WallTime now);

/// Turns a True condition False; never adds one.
void clear_condition(api::JobStatus& status, std::string_view type, std::string_view reason,
                     std::string message, WallTime now);

/// Whether pods of the job are being replaced.
bool replaces_pods(const api::JobStatus& status);

/// Fills in phase, reason and message from the conditions.
void compute_phase(api::JobStatus& status);

}  // namespace paceline::status
