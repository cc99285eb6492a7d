// SPDX-License-Identifier: Apache-2.0
// The TrainingJob that a conversion makes, field by field, and its document. Values; nothing fails.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/convert/fields.hpp"
#include "common/contract/roles.hpp"

namespace paceline::cli {

struct NewRole {
  std::string name;
  contract::RoleKind kind = contract::RoleKind::kWorker;
  std::int64_t replicas = 1;
  std::optional<std::int64_t> processes;
  std::string start_after;
  Json pod_template;
  std::string trainer_path;     // of the container that trains, in the source
  std::string containers_path;  // of all containers; empty: a script is the source
};

/// Bounds of the last role that holds workers.
struct NewElastic {
  std::optional<std::int64_t> fewest;  // unset: as many as the role has
  std::optional<std::int64_t> most;
};

struct NewJob {
  std::string name;
  std::string name_space;
  Json labels;
  Json annotations;
  std::string framework = "Custom";
  std::optional<std::int64_t> processes;  // unset: Auto
  bool passthrough = false;
  std::vector<NewRole> roles;
  std::optional<NewElastic> elastic;
  std::string queue;
  std::string priority_class;
  std::string gang_timeout;
  std::optional<std::int64_t> max_restarts;
  bool rank_zero = false;  // successPolicy: RankZero
  bool suspend = false;
  bool kueue = false;  // Kueue, which knows no TrainingJobs, would have ended the suspension
  std::string active_deadline;
  std::string ttl;
  std::string clean_pod_policy;
};

/// The document, its fields in the order in which the documentation has them.
Json to_document(const NewJob& job);

/// Reads metadata of a source document. Notes a name that a TrainingJob may not have, and its
/// replacement.
void read_metadata(const Json* metadata, NewJob& job, Notes& notes);

/// Asks for what Kueue would have done to the job. Call it once the whole document is read.
void note_kueue(const NewJob& job, Notes& notes);

/// Adds a role under a name that a role may have. Notes a change of the name.
NewRole& add_role(NewJob& job, const std::string& name, const std::string& path, Notes& notes);

/// Adds apiVersion, kind, status and what else each Kubernetes object has to the fields that were
/// read.
void read_envelope(Fields& document, NewJob& job);

}  // namespace paceline::cli
