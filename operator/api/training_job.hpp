// SPDX-License-Identifier: Apache-2.0
// A TrainingJob as the rest of Paceline sees it: typed, with every default filled in. Made by
// api::parse_training_job from the JSON of the API server or, in `paceline run`, from a file. Plain
// values, owned by whoever holds them; immutable after parsing by convention.
//
// Pod templates stay JSON documents: Paceline passes on what it does not need to understand.
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

namespace paceline::api {

enum class FrameworkType { kPyTorch, kCustom };
enum class FrameworkLauncher { kPaceline, kPassthrough };
enum class SuccessPolicy { kAllRanks, kRankZero };
enum class CleanPodPolicy { kRunning, kAll, kNone };
enum class AccelerationMode { kAuto, kManual, kDisabled };
/// In what the program's models compute: as they are written, float32 products by TF32, or mixed
/// precision (paceline.amp).
enum class Precision { kUnchanged, kTf32, kO1, kO2 };
inline constexpr std::array kPrecisions{Precision::kUnchanged, Precision::kTf32, Precision::kO1,
                                        Precision::kO2};
enum class GpuDirect { kRequired, kPreferred, kDisabled };
enum class Numerics { kBitwise, kReordered, kLossy };

std::string_view to_string(FrameworkType type);
std::string_view to_string(FrameworkLauncher launcher);
std::string_view to_string(SuccessPolicy policy);
std::string_view to_string(CleanPodPolicy policy);
std::string_view to_string(Numerics numerics);
std::string_view to_string(GpuDirect gpu_direct);
std::string_view to_string(Precision precision);

struct Framework {
  FrameworkType type = FrameworkType::kPyTorch;
  std::optional<int> processes_per_replica;  // unset: Auto, see api::processes_of
  FrameworkLauncher launcher = FrameworkLauncher::kPaceline;
};

struct Role {
  std::string name;
  int replicas = 1;
  nlohmann::json pod_template;  // {metadata, spec}
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
  std::chrono::nanoseconds force_delete_after = std::chrono::minutes(1);
};

/// What a job, or a RuntimeProfile, says of acceleration. What it leaves unset, `resolve` decides.
struct AccelerationChoice {
  std::optional<AccelerationMode> mode;
  std::optional<Numerics> numerics;
  std::optional<bool> loader;
  std::optional<bool> optimizer;
  std::optional<bool> communication;
  std::optional<std::string> compression;  // kNoCompression, or as is_compression has it
  std::optional<Precision> precision;
  std::optional<bool> cuda_graph;
};

/// What may change inside the training process of one gang.
struct Acceleration {
  std::string profile;  // the RuntimeProfile that had a say; empty: none
  Numerics numerics = Numerics::kReordered;
  bool loader = false;
  bool optimizer = false;
  bool communication = false;
  std::string compression;  // empty: none
  Precision precision = Precision::kUnchanged;
  bool cuda_graph = true;  // whether steps that the program has captured are
  bool operator==(const Acceleration&) const = default;
};

struct Network {
  std::optional<GpuDirect> gpu_direct;  // unset: as it comes
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
  // spec.acceleration.profileRef; empty: the default one, where there is one
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

/// One pod of the gang, by place: role and index in it. Its node rank counts over all roles in
/// their order.
struct Replica {
  int role = 0;
  int index = 0;
  int node_rank = 0;
};

/// All replicas in node-rank order.
std::vector<Replica> replicas_of(const Spec& spec);

/// How many replicas the gang has.
int replica_count(const Spec& spec);

/// A RuntimeProfile as far as the operator uses it.
struct RuntimeProfile {
  std::string name;
  AccelerationChoice acceleration;
};
inline constexpr std::string_view kDefaultProfile = "default";

/// The job's word first, then the profile's, then the defaults: mode Auto (all features), class
/// Reordered. Nothing when nothing is on: the job runs as it was written, as does one of which
/// neither says anything. Compression and precision are never a default, and nothing in a lesser
/// class than Lossy; compression asks for communication where the same document leaves that unset.
/// Whole-step graphs are the program's: a job or a profile can only turn them off.
std::optional<Acceleration> resolve(const Spec& spec, const RuntimeProfile* profile);

/// The queue that the job's share is counted in.
std::string queue_of(const TrainingJob& job);

}  // namespace paceline::api
