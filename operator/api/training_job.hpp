// SPDX-License-Identifier: Apache-2.0
// A TrainingJob with typed fields and all defaults filled in. api::parse_training_job makes it from
// the JSON of the API server, or from a file for `paceline run`. Values; nothing changes them after
// parsing.
//
// Pod templates stay JSON documents, so that fields unknown to Paceline reach the pod unchanged.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/clock.hpp"
#include "common/contract/roles.hpp"
#include "operator/api/acceleration.hpp"

namespace paceline::api {

/// In the order of contract::kFrameworks.
enum class FrameworkType {
  kPyTorch,
  kTensorFlow,
  kPaddlePaddle,
  kMindSpore,
  kMpi,
  kHorovod,
  kDeepSpeed,
  kJax,
  kBytePs,
  kXgBoost,
  kCustom
};
enum class FrameworkLauncher { kPaceline, kPassthrough };
enum class SuccessPolicy { kAllRanks, kRankZero };
enum class CleanPodPolicy { kRunning, kAll, kNone };
enum class GpuDirect { kRequired, kPreferred, kDisabled };

std::string_view to_string(FrameworkType type);
std::string_view to_string(FrameworkLauncher launcher);
std::string_view to_string(SuccessPolicy policy);
std::string_view to_string(CleanPodPolicy policy);
std::string_view to_string(GpuDirect gpu_direct);

struct Framework {
  FrameworkType type = FrameworkType::kPyTorch;
  std::optional<int> processes_per_replica;  // unset: Auto, see api::processes_of
  FrameworkLauncher launcher = FrameworkLauncher::kPaceline;
};

using contract::RoleKind;

struct Role {
  std::string name;
  RoleKind kind = RoleKind::kWorker;
  int replicas = 1;
  std::optional<int> processes;  // unset: see api::processes_of
  std::string start_after;       // name of a role; empty: starts with the gang
  nlohmann::json pod_template;   // {metadata, spec}
};

struct Scheduling {
  std::string queue;                // empty: the namespace
  std::string priority_class_name;  // empty: the operator's default class
  std::chrono::nanoseconds gang_timeout = std::chrono::minutes(2);
  bool exclusive_nodes = false;
};

struct FailurePolicy {
  int max_restarts = 3;
  std::chrono::nanoseconds backoff{0};
  std::chrono::nanoseconds grace_period = std::chrono::seconds(30);
  std::chrono::nanoseconds force_delete_after = std::chrono::minutes(5);
};

struct Network {
  std::optional<GpuDirect> gpu_direct;  // unset: GPUDirect is neither required nor disabled
};

struct Metadata {
  std::string name;
  std::string name_space = "default";
  std::string uid;
  std::string resource_version;
  std::int64_t generation = 0;
  std::optional<WallTime> created;
  bool deleting = false;
};

struct Spec {
  Framework framework;
  std::vector<Role> roles;
  Scheduling scheduling;
  FailurePolicy failure_policy;
  std::optional<AccelerationChoice> acceleration;
  // spec.acceleration.profileRef; empty: the default profile, if it exists
  std::string runtime_profile;
  Network network;
  SuccessPolicy success_policy = SuccessPolicy::kAllRanks;
  bool suspend = false;
  std::optional<std::chrono::nanoseconds> active_deadline;
  std::optional<std::chrono::nanoseconds> ttl_after_finished;
  CleanPodPolicy clean_pod_policy = CleanPodPolicy::kRunning;
  std::string managed_by;
};

struct TrainingJob {
  Metadata metadata;
  Spec spec;
};

/// One pod of the gang. The node rank numbers the replicas of all roles, in the order of the roles.
struct Replica {
  int role = 0;
  int index = 0;
  int node_rank = 0;
};

/// All replicas in node-rank order.
std::vector<Replica> replicas_of(const Spec& spec);

/// How many roles must have started before this one, one after another. `start_after` has no cycle:
/// api::parse_training_job refuses one.
int start_stage(const Spec& spec, const Role& role);

/// How many replicas the gang has.
int replica_count(const Spec& spec);

/// 16 hexadecimal digits that differ if the pods of two specs differ: roles with their templates,
/// framework and network. Fields with defaults of their own (failurePolicy, scheduling) are left
/// out, because a new default must not stop running gangs.
std::string fingerprint(const Spec& spec);

/// The queue that the job's share is counted in.
std::string queue_of(const TrainingJob& job);

}  // namespace paceline::api
