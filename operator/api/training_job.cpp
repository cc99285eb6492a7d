// SPDX-License-Identifier: Apache-2.0
#include "operator/api/training_job.hpp"

namespace paceline::api {

std::string_view to_string(FrameworkType type) {
  return type == FrameworkType::kPyTorch ? "PyTorch" : "Custom";
}

std::string_view to_string(FrameworkLauncher launcher) {
  return launcher == FrameworkLauncher::kPaceline ? "Paceline" : "Passthrough";
}

std::string_view to_string(SuccessPolicy policy) {
  return policy == SuccessPolicy::kAllRanks ? "AllRanks" : "RankZero";
}

std::string_view to_string(CleanPodPolicy policy) {
  switch (policy) {
    case CleanPodPolicy::kRunning: return "Running";
    case CleanPodPolicy::kAll: return "All";
    case CleanPodPolicy::kNone: return "None";
  }
  return "Running";
}

std::string_view to_string(GpuDirect gpu_direct) {
  switch (gpu_direct) {
    case GpuDirect::kRequired: return "Required";
    case GpuDirect::kPreferred: return "Preferred";
    case GpuDirect::kDisabled: return "Disabled";
  }
  return "Disabled";
}

std::vector<Replica> replicas_of(const Spec& spec) {
  std::vector<Replica> replicas;
  replicas.reserve(static_cast<std::size_t>(replica_count(spec)));
  int node_rank = 0;
  for (std::size_t role = 0; role < spec.roles.size(); ++role) {
    for (int index = 0; index < spec.roles[role].replicas; ++index) {
      replicas.push_back({static_cast<int>(role), index, node_rank++});
    }
  }
  return replicas;
}

int replica_count(const Spec& spec) {
  int count = 0;
  for (const Role& role : spec.roles) count += role.replicas;
  return count;
}

std::string queue_of(const TrainingJob& job) {
  return job.spec.scheduling.queue.empty() ? job.metadata.name_space : job.spec.scheduling.queue;
}

}  // namespace paceline::api
