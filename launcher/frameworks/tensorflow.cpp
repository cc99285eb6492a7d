// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "launcher/frameworks/frameworks.hpp"

namespace paceline::frameworks {
namespace {

constexpr int kTensorFlowPort = 2222;

const char* task_type(RoleKind kind) {
  switch (kind) {
    case RoleKind::kCoordinator: return "chief";
    case RoleKind::kParameterServer: return "ps";
    case RoleKind::kEvaluator: return "evaluator";
    default: return "worker";
  }
}

}  // namespace

void set_tensorflow(const Process& process, Variables& variables) {
  nlohmann::json cluster = nlohmann::json::object();
  // An evaluator is no part of the cluster: it only reads checkpoints.
  for (const RoleKind kind :
       {RoleKind::kCoordinator, RoleKind::kWorker, RoleKind::kParameterServer}) {
    const auto tasks = endpoints(process.table, kind, kTensorFlowPort);
    if (!tasks.empty()) cluster[task_type(kind)] = tasks;
  }
  const nlohmann::json config = {
      {"cluster", cluster},
      {"task", {{"type", task_type(process.node.kind)}, {"index", index_of(process)}}}};
  variables.set("TF_CONFIG", config.dump());
}

}  // namespace paceline::frameworks
