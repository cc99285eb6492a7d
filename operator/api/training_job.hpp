// SPDX-License-Identifier: Apache-2.0
// A TrainingJob with typed fields and all defaults filled in. api::parse_training_job makes it from
// the JSON of the API server, or from a file for `paceline run`. Values; nothing changes them after
// parsing.
//
// Pod templates stay JSON documents, so that fields unknown to Paceline reach the pod unchanged.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/clock.hpp"
#include "common/contract/roles.hpp"
#include "common/failure/rules.hpp"
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
/// Parts of the network that nodes share, from the closest to the widest.
enum class TopologyLevel { kNvlink, kLeaf, kSpine, kZone };
inline constexpr std::array<std::string_view, 4> kTopologyLevels{"NVLink", "Leaf", "Spine", "Zone"};
/// How a job that waits asks the cluster's autoscaler for nodes. In the order of the schema.
enum class Provision {
  kAuto,
  kProvisioningRequest,
  kCapacityBuffer,
  kPlaceholders,
  kDisabled,
};

/// Who chooses the nodes of a gang. In the order of the schema.
enum class Backend {
  kAuto,    // the gang scheduler that the pod templates name, else Paceline
  kNative,  // Paceline
  kVolcano,
  kCoscheduling,
  kPodGroup,  // kube-scheduler, by the PodGroups of Kubernetes itself
  kKai,
};

std::string_view to_string(FrameworkType type);
std::string_view to_string(FrameworkLauncher launcher);
std::string_view to_string(SuccessPolicy policy);
std::string_view to_string(CleanPodPolicy policy);
std::string_view to_string(GpuDirect gpu_direct);
std::string_view to_string(Provision provision);
std::string_view to_string(Backend backend);

struct Framework {
  FrameworkType type = FrameworkType::kPyTorch;
  std::optional<int> processes_per_replica;  // unset: Auto, see api::processes_of
  FrameworkLauncher launcher = FrameworkLauncher::kPaceline;
};

using contract::RoleKind;

struct Role {
  std::string name;
  RoleKind kind = RoleKind::kWorker;
  int replicas = 1;              // the spares included
  int spares = 0;                // the last ones, which stand by; only of the last role
  std::optional<int> processes;  // unset: see api::processes_of
  std::string start_after;       // name of a role; empty: starts with the gang
  nlohmann::json pod_template;   // {metadata, spec}
};

/// One role may have another number of replicas while the job runs.
struct Elastic {
  std::size_t role = 0;  // position in Spec::roles
  int replicas = 1;      // wanted
  int min_replicas = 1;
  int max_replicas = 1;
};

struct Scheduling {
  std::string queue;                // empty: the namespace
  std::string priority_class_name;  // empty: the operator's default class
  std::chrono::nanoseconds gang_timeout = std::chrono::minutes(2);
  std::optional<int> pods_per_node;  // most pods of the job on a node; unset: no limit
  Provision provision = Provision::kAuto;
  Backend backend = Backend::kAuto;
};

struct FailurePolicy {
  int max_restarts = 3;
  std::optional<int> max_disruptions;  // unset: unlimited
  int spares = 0;
  std::chrono::nanoseconds backoff{0};
  std::chrono::nanoseconds grace_period = std::chrono::seconds(30);
  std::chrono::nanoseconds force_delete_after = std::chrono::minutes(5);
  std::vector<failure::Rule> rules;  // the first that matches decides
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
  // the labels kueue.x-k8s.io/queue-name and kueue.x-k8s.io/priority-class
  std::string kueue_queue;
  std::string kueue_priority;
};

struct Spec {
  Framework framework;
  // Of an elastic job that is placed, with the size of the placement (api::size_as_placed).
  std::vector<Role> roles;
  std::optional<Elastic> elastic;
  Scheduling scheduling;
  FailurePolicy failure_policy;
  AccelerationChoice acceleration;
  // spec.acceleration.runtimeProfileName; empty: the default profile, if it exists
  std::string runtime_profile;
  Network network;
  // spec.topology.required: no placement crosses a domain of this level
  std::optional<TopologyLevel> required_topology;
  // spec.topology.preferred: a job that could run waits so long for one domain of this level
  std::optional<TopologyLevel> preferred_topology;
  std::chrono::nanoseconds preferred_timeout = std::chrono::minutes(5);
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

inline constexpr std::string_view kVolcanosScheduler = "volcano";

/// schedulerName of the role's pod template; "" if it names none.
std::string scheduler_name(const Role& role);

/// Never kAuto. kNative: Paceline.
Backend backend_of(const Spec& spec);

/// How many replicas the gang has, the spares included.
int replica_count(const Spec& spec);

/// How many of them have a place in the rank table at a time.
int place_count(const Spec& spec);

/// The queue that the job names, by Kueue's label or in scheduling.queue; empty: none.
const std::string& named_queue(const TrainingJob& job);

/// The queue that the job's share is counted in.
std::string queue_of(const TrainingJob& job);

}  // namespace paceline::api
