// SPDX-License-Identifier: Apache-2.0
// The status of a TrainingJob: what the operator stores in the API server and people read. Printed
// values are stored as they are printed.
//
// Values. Reading is lenient: a value of the wrong type reads as absent, because only the operator
// writes a status. Writing produces exactly the CRD's shape.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/clock.hpp"
#include "operator/api/placement.hpp"
#include "operator/api/training_job.hpp"

namespace paceline::api {

struct Condition {
  std::string type;
  std::string status;  // True, False, Unknown
  std::string reason;
  std::string message;
  WallTime since{};  // lastTransitionTime
  std::int64_t observed_generation = 0;
  bool operator==(const Condition&) const = default;
};

struct RoleStatus {
  std::string name;
  int replicas = 0;
  int ready = 0;
  int succeeded = 0;
  int failed = 0;
  std::vector<int> incarnations;  // per index: how many pods the replica had before its present one
  bool operator==(const RoleStatus&) const = default;
};

/// Over all roles.
struct PodCounts {
  int ready = 0;
  int total = 0;
  bool operator==(const PodCounts&) const = default;
};

/// A node that failed this job; the job avoids it for a while.
struct ExcludedNode {
  std::string name;
  std::string message;  // what failed there, and its evidence
  WallTime since{};
  WallTime until{};
  int count = 1;  // failures there one soon after the other: each doubles the time
  bool operator==(const ExcludedNode&) const = default;
};

/// Of an elastic job.
struct ElasticStatus {
  int replicas = 0;                 // of the elastic role in the present placement; 0: it has none
  int wanted = 0;                   // spec.elastic.replicas that the present size was chosen for
  std::string selector{};           // of the role's pods, for the scale subresource
  std::optional<WallTime> since{};  // when the present size was chosen
  std::string message{};  // why there are fewer replicas than wanted; empty: there are not
  bool operator==(const ElasticStatus&) const = default;
};

struct JobStatus {
  std::int64_t observed_generation = 0;
  std::string phase;
  std::string queue;                    // that the job is in, named by the job or not
  std::optional<PodCounts> pod_counts;  // unset: the job is not placed
  std::string reason;
  std::string message;
  int attempt = 0;
  int restarts = 0;
  int disruptions = 0;  // losses from outside the job, which cost no restart
  std::optional<WallTime> start_time;
  std::optional<WallTime> completion_time;
  std::vector<Condition> conditions;
  std::vector<RoleStatus> roles;
  std::optional<ElasticStatus> elastic;
  std::vector<PlacedNode> placement;
  // of the present placement, for people: "16 nodes in 2 leaves, spine s3"
  std::string placement_where;
  // of the present placement: its pods get the runtime from slots of their nodes
  bool slots = false;
  std::string runtime_image;  // of the present placement, whatever a later operator is started with
  int contract = 0;  // contract::kRuntimeContract of the present placement; 0: of older operators
  // of another scheduler, which binds the pods of the present placement; it outlives the placement
  // until the last pod has ended; empty: Paceline chooses the nodes
  std::string pod_group;
  std::string workload;     // of Kueue, whose quota the present placement uses; empty: of none
  std::string placed_spec;  // api::fingerprint of the spec that the present placement was made for
  std::optional<Acceleration> acceleration;  // of the present placement, for all its pods
  nlohmann::json effects;                    // of the features of `acceleration`; null if unknown
  std::vector<ExcludedNode> excluded_nodes;  // oldest first
  nlohmann::json training;                   // null if there is none
  nlohmann::json goodput;                    // null if there is none
  nlohmann::json checkpoint;                 // that all ranks saved before a pod went; the same
  nlohmann::json culprit;
  nlohmann::json findings;  // null if there are none
  bool operator==(const JobStatus&) const = default;

  const Condition* find(std::string_view type) const;
  bool is_true(std::string_view type) const;
  bool is(std::string_view type, std::string_view reason) const;  // for either status
  bool finished() const { return is_true("Succeeded") || is_true("Failed"); }
  bool placed() const { return !placement.empty(); }
  /// The node of every node rank; empty if the job is not placed.
  std::vector<std::string> nodes() const;
  void set_nodes(const std::vector<std::string>& nodes);
};

/// Reads the object's `status`. A missing status reads as that of a new job.
JobStatus read_status(const nlohmann::json& object);
nlohmann::json write_status(const JobStatus& status);

}  // namespace paceline::api
