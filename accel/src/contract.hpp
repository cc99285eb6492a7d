// SPDX-License-Identifier: Apache-2.0
// The environment variables that libpaceline.so reads. Made by scripts/contract from
// common/contract/contract.yaml: edit that file.
#pragma once

namespace paceline::runtime_env {

/// index of this replica in the gang, over all roles in their order, from 0
inline constexpr const char* kNodeRank = "PACELINE_NODE_RANK";
/// attempt of the gang, from 0: in a pod as the operator last knew it, in a rank the present one
inline constexpr const char* kAttempt = "PACELINE_ATTEMPT";
/// Unix socket to which a rank offers its ring of step records
inline constexpr const char* kTelemetrySocket = "PACELINE_TELEMETRY_SOCKET";
/// 1: nothing is changed inside the training process
inline constexpr const char* kDisable = "PACELINE_DISABLE";
/// a lesser instruction set than the processor's best, with the same results
inline constexpr const char* kSimd = "PACELINE_SIMD";

}  // namespace paceline::runtime_env
