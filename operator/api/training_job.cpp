// SPDX-License-Identifier: Apache-2.0
#include "operator/api/training_job.hpp"

#include <algorithm>

namespace paceline::api {

std::string_view to_string(FrameworkType type) {
  return contract::kFrameworks[static_cast<std::size_t>(type)];
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

std::string_view to_string(Provision provision) {
  switch (provision) {
    case Provision::kAuto: return "Auto";
    case Provision::kProvisioningRequest: return "ProvisioningRequest";
    case Provision::kCapacityBuffer: return "CapacityBuffer";
    case Provision::kPlaceholders: return "Placeholders";
    case Provision::kDisabled: return "Disabled";
  }
  return "Auto";
}

std::string_view to_string(Backend backend) {
  switch (backend) {
    case Backend::kAuto: return "Auto";
    case Backend::kNative: return "Native";
    case Backend::kVolcano: return "Volcano";
    case Backend::kCoscheduling: return "Coscheduling";
    case Backend::kPodGroup: return "PodGroup";
    case Backend::kKai: return "KAI";
  }
  return "Auto";
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

int start_stage(const Spec& spec, const Role& role) {
  const auto named = [&](const std::string& name) {
    return std::ranges::find(spec.roles, name, &Role::name);
  };
  int stage = 0;
  for (auto before = named(role.start_after);
       before != spec.roles.end() && stage < static_cast<int>(spec.roles.size());
       before = named(before->start_after))
    ++stage;
  return stage;
}

std::string scheduler_name(const Role& role) {
  const auto spec = role.pod_template.find("spec");
  if (spec == role.pod_template.end() || !spec->is_object()) return "";
  const auto name = spec->find("schedulerName");
  return name != spec->end() && name->is_string() ? name->get<std::string>() : "";
}

Backend backend_of(const Spec& spec) {
  if (spec.scheduling.backend != Backend::kAuto) return spec.scheduling.backend;
  // Coscheduling is a plugin: its scheduler may have any name.
  const bool volcano =
      !spec.roles.empty() && scheduler_name(spec.roles.front()) == kVolcanosScheduler;
  return volcano ? Backend::kVolcano : Backend::kNative;
}

int replica_count(const Spec& spec) {
  int count = 0;
  for (const Role& role : spec.roles) count += role.replicas;
  return count;
}

int place_count(const Spec& spec) { return replica_count(spec) - spec.failure_policy.spares; }

const std::string& named_queue(const TrainingJob& job) {
  return job.metadata.kueue_queue.empty() ? job.spec.scheduling.queue : job.metadata.kueue_queue;
}

std::string queue_of(const TrainingJob& job) {
  const std::string& named = named_queue(job);
  return named.empty() ? job.metadata.name_space : named;
}

}  // namespace paceline::api
