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

inline constexpr std::array<std::string_view, 11> kFrameworks{
    "PyTorch",   "TensorFlow", "PaddlePaddle", "MindSpore", "MPI",   "Horovod",
    "DeepSpeed", "JAX",        "BytePS",       "XGBoost",   "Custom"};

}  // namespace paceline::contract
