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

/// A node where this job's preflight failed; the job avoids it for a while.
struct ExcludedNode {
  std::string name;
  std::string message;  // the check and its evidence
  WallTime since{};
  bool operator==(const ExcludedNode&) const = default;
};

struct JobStatus {
  std::int64_t observed_generation = 0;
  std::string phase;
  std::string ready;
  std::string reason;
  std::string message;
  int attempt = 0;
  int restarts = 0;
  std::optional<WallTime> start_time;
  std::optional<WallTime> completion_time;
  std::vector<Condition> conditions;
  std::vector<RoleStatus> roles;
  std::vector<PlacedNode> placement;
  // of the present placement: its pods get the runtime from slots of their nodes
  bool slots = false;
  std::string runtime_image;  // of the present placement, whatever a later operator is started with
  int contract = 0;  // contract::kRuntimeContract of the present placement; 0: of older operators
  std::string placed_spec;  // api::fingerprint of the spec that the present placement was made for
  std::optional<Acceleration> acceleration;  // of the present placement, for all its pods
  nlohmann::json effects;                    // of the features of `acceleration`; null if unknown
  std::vector<ExcludedNode> excluded_nodes;  // oldest first
  nlohmann::json training;                   // null if there is none
  nlohmann::json culprit;
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
