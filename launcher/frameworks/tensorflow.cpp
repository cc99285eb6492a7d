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

/// A server is told of itself, a worker of all servers and of itself: workers may come and go.
/// TensorFlow takes an object of numbers and addresses for a list with gaps.
nlohmann::json sparse_cluster(const Process& process) {
  const RoleKind kind = process.node.kind;
  const auto servers = endpoints(process.table, RoleKind::kParameterServer, kTensorFlowPort);
  const auto index = static_cast<std::size_t>(index_of(process));
  nlohmann::json cluster = nlohmann::json::object();
  if (kind == RoleKind::kParameterServer) {
    cluster["ps"] = {servers[index]};
    return cluster;
  }
  if (!servers.empty()) cluster["ps"] = servers;
  if (kind != RoleKind::kEvaluator)
    cluster[task_type(kind)] = {
        {std::to_string(index), endpoints(process.table, kind, kTensorFlowPort)[index]}};
  return cluster;
}

nlohmann::json whole_cluster(const Process& process) {
  std::vector<RoleKind> kinds{RoleKind::kCoordinator, RoleKind::kWorker,
                              RoleKind::kParameterServer};
  // An evaluator only reads checkpoints. TensorFlow's own strategies expect it outside the cluster.
  if (process.setting.tf_config == "WithEvaluator") kinds.push_back(RoleKind::kEvaluator);
  nlohmann::json cluster = nlohmann::json::object();
  for (const RoleKind kind : kinds) {
    const auto tasks = endpoints(process.table, kind, kTensorFlowPort);
    if (!tasks.empty()) cluster[task_type(kind)] = tasks;
  }
  return cluster;
}

}  // namespace

void set_tensorflow(const Process& process, Variables& variables) {
  const bool sparse = process.setting.tf_config == "Sparse";
  const nlohmann::json config = {
      {"cluster", sparse ? sparse_cluster(process) : whole_cluster(process)},
      {"task", {{"type", task_type(process.node.kind)}, {"index", index_of(process)}}}};
  variables.set("TF_CONFIG", config.dump());
}

}  // namespace paceline::frameworks
