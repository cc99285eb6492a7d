// SPDX-License-Identifier: Apache-2.0
#include "operator/api/training_job.hpp"

#include "operator/api/compression.hpp"

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

std::string_view to_string(Numerics numerics) {
  switch (numerics) {
    case Numerics::kBitwise: return "Bitwise";
    case Numerics::kReordered: return "Reordered";
    case Numerics::kLossy: return "Lossy";
  }
  return "Reordered";
}

std::string_view to_string(Precision precision) {
  switch (precision) {
    case Precision::kTf32: return "TF32";
    case Precision::kO1: return "O1";
    case Precision::kO2: return "O2";
    case Precision::kUnchanged: break;
  }
  return "Disabled";
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

std::optional<Acceleration> resolve(const Spec& spec, const RuntimeProfile* profile) {
  if (!spec.acceleration && profile == nullptr) return std::nullopt;
  const AccelerationChoice job = spec.acceleration.value_or(AccelerationChoice{});
  // A job that wants nothing of this is not to be talked into a part of it.
  if (job.mode == AccelerationMode::kDisabled) return std::nullopt;
  const AccelerationChoice base = profile != nullptr ? profile->acceleration : AccelerationChoice{};
  const AccelerationMode mode = job.mode.value_or(base.mode.value_or(AccelerationMode::kAuto));
  const auto on = [&](std::optional<bool> AccelerationChoice::* feature) {
    return (job.*feature).value_or((base.*feature).value_or(mode == AccelerationMode::kAuto));
  };
  Acceleration result{
      .profile = profile != nullptr ? profile->name : "",
      .numerics = job.numerics.value_or(base.numerics.value_or(Numerics::kReordered)),
      .loader = on(&AccelerationChoice::loader),
      .optimizer = on(&AccelerationChoice::optimizer),
      .communication = on(&AccelerationChoice::communication),
      .compression = {},
      .precision = Precision::kUnchanged,
      .cuda_graph = job.cuda_graph.value_or(base.cuda_graph.value_or(true))};
  const std::string compression =
      job.compression.value_or(base.compression.value_or(std::string(kNoCompression)));
  if (compression != kNoCompression && result.numerics == Numerics::kLossy) {
    const AccelerationChoice& asks = job.compression ? job : base;
    const bool carried = job.communication.value_or(asks.communication.value_or(true));
    if (carried) result.compression = compression;
    result.communication = carried;
  }
  if (result.numerics == Numerics::kLossy)
    result.precision = job.precision.value_or(base.precision.value_or(Precision::kUnchanged));
  const bool any = result.loader || result.optimizer || result.communication;
  if (!any && result.precision == Precision::kUnchanged && result.cuda_graph) return std::nullopt;
  return result;
}

std::string queue_of(const TrainingJob& job) {
  return job.spec.scheduling.queue.empty() ? job.metadata.name_space : job.spec.scheduling.queue;
}

}  // namespace paceline::api
