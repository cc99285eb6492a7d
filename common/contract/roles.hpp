// SPDX-License-Identifier: Apache-2.0
// What the pods of a role do for the training, as spec.roles[].kind says it, and which frameworks
// there are. Operator and launchers share it. Constants and pure functions; nothing fails.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace paceline::contract {

/// In the order in which processes are numbered: ranks of training come first.
enum class RoleKind { kCoordinator, kWorker, kLauncher, kScheduler, kParameterServer, kEvaluator };

inline constexpr std::array<std::string_view, 6> kRoleKinds{
    "Coordinator", "Worker", "Launcher", "Scheduler", "ParameterServer", "Evaluator"};

constexpr std::string_view to_string(RoleKind kind) {
  return kRoleKinds[static_cast<std::size_t>(kind)];
}

constexpr std::optional<RoleKind> role_kind(std::string_view name) {
  const auto* const found = std::find(kRoleKinds.begin(), kRoleKinds.end(), name);
  if (found == kRoleKinds.end()) return std::nullopt;
  return static_cast<RoleKind>(found - kRoleKinds.begin());
}

/// Whether the role's processes are ranks of the training, which WORLD_SIZE counts.
constexpr bool trains(RoleKind kind) {
  return kind == RoleKind::kCoordinator || kind == RoleKind::kWorker;
}

/// Whether the role's steps are none of the training's: the job's measurements leave them out.
constexpr bool helps(RoleKind kind) {
  return kind == RoleKind::kScheduler || kind == RoleKind::kParameterServer ||
         kind == RoleKind::kEvaluator;
}

/// Whether the job has succeeded only when the role's processes have exited with 0. If the job has
/// a launcher, the launcher alone decides.
constexpr bool decides(RoleKind kind, bool job_has_launcher) {
  return job_has_launcher ? kind == RoleKind::kLauncher : trains(kind);
}

/// Whether the failure or loss of a replica leaves the rest of the gang running. Workers that train
/// through parameter servers do not wait for each other. A scheduler counts the workers, and so a
/// job with one restarts as a whole.
constexpr bool fails_alone(RoleKind kind, bool job_has_servers, bool job_has_scheduler) {
  return kind == RoleKind::kEvaluator ||
         (kind == RoleKind::kWorker && job_has_servers && !job_has_scheduler);
}

/// Whether the other processes of a parameter-server job go on while one worker starts again. The
/// coordinator of TensorFlow 2.21 waits forever after that (tests/frameworks).
constexpr bool keeps_without_a_worker(std::string_view framework) {
  return framework != "TensorFlow";
}

inline constexpr std::array<std::string_view, 11> kFrameworks{
    "PyTorch",   "TensorFlow", "PaddlePaddle", "MindSpore", "MPI",   "Horovod",
    "DeepSpeed", "JAX",        "BytePS",       "XGBoost",   "Custom"};

}  // namespace paceline::contract
