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
/// file by which the launcher asks a rank to record steps, or for a kernel window; what the rank
/// records is written beside it
inline constexpr const char* kTraceRequest = "PACELINE_TRACE_REQUEST";
/// 1: nothing is changed inside the training process
inline constexpr const char* kDisable = "PACELINE_DISABLE";
/// Auto: NCCL's collectives are counted and timed by libpaceline_nccl.so, in ranks with GPUs.
/// Disabled: NCCL gets no profiler plugin of Paceline
inline constexpr const char* kNcclProfiler = "PACELINE_NCCL_PROFILER";
/// Auto: for a few steps of every 500 libpaceline_cupti.so records what the GPU does. Disabled: it
/// is not loaded
inline constexpr const char* kKernelWindows = "PACELINE_KERNEL_WINDOWS";
/// a lesser instruction set than the processor's best, with the same results
inline constexpr const char* kSimd = "PACELINE_SIMD";

}  // namespace paceline::runtime_env
