// SPDX-License-Identifier: Apache-2.0
#include "operator/render/environment.hpp"

#include <algorithm>

#include "common/base/timestamp.hpp"
#include "common/contract/env.hpp"
#include "common/contract/pod_defaults.hpp"
#include "operator/api/template/containers.hpp"

namespace paceline::render {
namespace {

/// Exact, for programs; format_duration rounds for people.
std::string exact_duration(std::chrono::nanoseconds duration) {
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
  if (micros % 1'000'000 == 0) return std::to_string(micros / 1'000'000) + "s";
  if (micros % 1000 == 0) return std::to_string(micros / 1000) + "ms";
  return std::to_string(micros) + "us";
}

class Builder {
 public:
  void set(std::string_view name, std::string value) {
    environment_.emplace_back(name, std::move(value));
  }
  void set(const env::Variable& variable, std::string value) {
    set(variable.name, std::move(value));
  }
  void set(const env::Variable& variable, int value) { set(variable, std::to_string(value)); }
  void set_unless_empty(const env::Variable& variable, const std::string& value) {
    if (!value.empty()) set(variable, value);
  }
  Environment take() { return std::move(environment_); }

 private:
  Environment environment_;
};

bool names(const nlohmann::json* container, std::string_view variable) {
  if (container == nullptr) return false;
  const auto list = container->find("env");
  if (list == container->end() || !list->is_array()) return false;
  return std::ranges::any_of(*list, [&](const nlohmann::json& entry) {
    return entry.is_object() && entry.contains("name") && entry["name"] == std::string(variable);
  });
}

/// A variable that the template sets itself keeps the template's value.
void accelerate(Builder& builder, const api::Acceleration& acceleration,
                const nlohmann::json* trainer) {
  for (auto& [name, value] : api::variables_of(acceleration))
    if (!names(trainer, name)) builder.set(name, std::move(value));
}

}  // namespace

Environment replica_environment(const api::TrainingJob& job, const api::Replica& replica,
                                const Endpoints& endpoints) {
  const api::Spec& spec = job.spec;
  const api::Role& role = spec.roles[static_cast<std::size_t>(replica.role)];
  Builder builder;
  builder.set(env::kJobName, job.metadata.name);
  builder.set(env::kJobNamespace, job.metadata.name_space);
  builder.set(env::kJobUid, job.metadata.uid);
  builder.set(env::kRole, role.name);
  if (role.kind != api::RoleKind::kWorker)
    builder.set(env::kRoleKind, std::string(contract::to_string(role.kind)));
  if (const int stage = api::start_stage(spec, role); stage > 0)
    builder.set(env::kStartStage, stage);
  builder.set(env::kReplicaIndex, replica.index);
  builder.set(env::kNodeRank, replica.node_rank);
  builder.set(env::kNodeCount, api::place_count(spec));
  if (spec.failure_policy.spares > 0) builder.set(env::kSpares, spec.failure_policy.spares);
  builder.set(env::kIncarnation, endpoints.incarnation);
  builder.set_unless_empty(env::kPodName, endpoints.pod_name);
  builder.set_unless_empty(env::kPodIp, endpoints.pod_ip);
  builder.set_unless_empty(env::kNodeName, endpoints.node_name);
  builder.set_unless_empty(env::kSubdomain, endpoints.subdomain);

  builder.set(env::kFramework, std::string(api::to_string(spec.framework.type)));
  builder.set(env::kFrameworkLauncher, std::string(api::to_string(spec.framework.launcher)));
  builder.set(env::kProcessesPerReplica, api::processes_of(spec, role));
  const nlohmann::json* trainer = api::trainer_of(role);
  if (trainer != nullptr) {
    if (const auto milli = api::resource_milli(*trainer, "limits", "cpu")) {
      builder.set(env::kCpuLimit, static_cast<int>(std::max<std::int64_t>(1, *milli / 1000)));
    }
  }

  if (const auto& gpu_direct = spec.network.gpu_direct;
      gpu_direct && (*gpu_direct == api::GpuDirect::kDisabled || api::has_accelerators(role)))
    builder.set(env::kGpuDirect, std::string(api::to_string(*gpu_direct)));

  builder.set_unless_empty(env::kRendezvousAddress, endpoints.rendezvous_address);
  builder.set_unless_empty(env::kRendezvousListen, endpoints.rendezvous_listen);
  if (endpoints.port_base > 0) builder.set(env::kPortBase, endpoints.port_base);
  builder.set_unless_empty(env::kToken, endpoints.token);
  builder.set_unless_empty(env::kStartupTimeout, endpoints.startup_timeout);

  builder.set(env::kAttempt, endpoints.attempt);
  builder.set(env::kRestarts, endpoints.restarts);
  if (replica.node_rank == 0) {
    builder.set_unless_empty(env::kGoodput, endpoints.goodput);
    if (job.metadata.created) builder.set(env::kJobCreated, format_time(*job.metadata.created));
    // Later pods start while the job is placed.
    if (endpoints.placed && endpoints.goodput.empty())
      builder.set(env::kJobPlaced, format_time(*endpoints.placed));
  }
  builder.set(env::kMaxRestarts, spec.failure_policy.max_restarts);
  if (replica.node_rank == 0 && !spec.failure_policy.rules.empty())
    builder.set(env::kFailureRules, failure::to_json(spec.failure_policy.rules));
  builder.set(env::kBackoff, exact_duration(spec.failure_policy.backoff));
  builder.set(env::kGracePeriod, exact_duration(spec.failure_policy.grace_period));
  builder.set(env::kSuccessPolicy, std::string(api::to_string(spec.success_policy)));

  if (endpoints.acceleration) accelerate(builder, *endpoints.acceleration, trainer);

  builder.set_unless_empty(env::kRuntimeDir, endpoints.runtime_dir);
  builder.set_unless_empty(env::kStateDir, endpoints.state_dir);
  builder.set_unless_empty(env::kTerminationLog, endpoints.termination_log);
  builder.set_unless_empty(env::kHttpListen, endpoints.http_listen);
  return builder.take();
}

std::string settings_of(const Environment& environment) {
  static constexpr std::string_view kPrefix = "PACELINE_";
  nlohmann::json settings = nlohmann::json::object();
  for (const auto& [name, value] : environment) settings[name.substr(kPrefix.size())] = value;
  for (const contract::PodDefault& known : contract::kPodDefaults) {
    const auto found = settings.find(known.name);
    if (found != settings.end() && *found == known.value) settings.erase(found);
  }
  return settings.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace paceline::render
