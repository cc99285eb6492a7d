// SPDX-License-Identifier: Apache-2.0
#include "operator/api/elastic.hpp"

#include <algorithm>

#include "common/contract/labels.hpp"
#include "operator/api/object_reader.hpp"

namespace paceline::api {
namespace {

constexpr std::int64_t kMostElastic = 10000;

/// Names the bound that `replicas` breaks.
void check_bounds(const Elastic& elastic, FieldErrors& errors) {
  if (elastic.min_replicas > elastic.max_replicas) {
    errors.push_back({"spec.elastic.minReplicas", std::to_string(elastic.min_replicas),
                      "is above maxReplicas (" + std::to_string(elastic.max_replicas) + ")",
                      "write a smaller number, or raise maxReplicas"});
  } else if (elastic.replicas < elastic.min_replicas || elastic.replicas > elastic.max_replicas) {
    errors.push_back({"spec.elastic.replicas", std::to_string(elastic.replicas),
                      "is outside minReplicas and maxReplicas",
                      "write a number from " + std::to_string(elastic.min_replicas) + " to " +
                          std::to_string(elastic.max_replicas)});
  }
}

}  // namespace

std::string elastic_role(const nlohmann::json* value) {
  if (value == nullptr || !value->is_object()) return "";
  const auto role = value->find("role");
  return role != value->end() && role->is_string() ? role->get<std::string>() : "";
}

void read_elastic(const nlohmann::json& value, Spec& spec, FieldErrors& errors) {
  ObjectReader reader(value, "spec.elastic", errors);
  reader.require("role", "write the name of the role that may grow and shrink");
  reader.require("replicas", "write how many pods the role is to have");
  reader.require("minReplicas", "write the fewest pods that the job may run with");
  reader.require("maxReplicas", "write the most pods that the job may run with");
  const auto name = reader.string("role", 253);
  const auto replicas = reader.integer("replicas", 1, kMostElastic);
  const auto fewest = reader.integer("minReplicas", 1, kMostElastic);
  const auto most = reader.integer("maxReplicas", 1, kMostElastic);
  reader.finish();
  if (!name || !replicas || !fewest || !most) return;
  const auto role = std::ranges::find(spec.roles, *name, &Role::name);
  if (role == spec.roles.end()) {
    errors.push_back({"spec.elastic.role", *name, "is no role of this job",
                      "write the name of a role of kind Worker"});
    return;
  }
  if (role->kind != RoleKind::kWorker) {
    errors.push_back({"spec.elastic.role", *name,
                      "is of kind " + std::string(contract::to_string(role->kind)),
                      "write the name of a role of kind Worker"});
  }
  const Elastic elastic{static_cast<std::size_t>(role - spec.roles.begin()),
                        static_cast<int>(*replicas), static_cast<int>(*fewest),
                        static_cast<int>(*most)};
  check_bounds(elastic, errors);
  const int others = replica_count(spec) - role->replicas;
  if (others + elastic.max_replicas > kMostElastic) {
    errors.push_back(
        {"spec.elastic.maxReplicas", std::to_string(elastic.max_replicas),
         "makes too many pods with the other roles",
         "write at most " + std::to_string(std::max<std::int64_t>(1, kMostElastic - others))});
  }
  role->replicas = elastic.replicas;
  spec.elastic = elastic;
}

void size_as_placed(Spec& spec, const JobStatus& status) {
  if (!spec.elastic || !status.elastic || !status.placed()) return;
  const int size = status.elastic->replicas;
  // A damaged status names no size: the placement then does not fit the spec, and is given up.
  if (size >= 1 && size <= kMostElastic) spec.roles[spec.elastic->role].replicas = size;
}

std::optional<int> elastic_size(const Spec& spec, std::size_t pods) {
  const Elastic& elastic = *spec.elastic;
  const int others = replica_count(spec) - spec.roles[elastic.role].replicas;
  const int size = static_cast<int>(pods) - others;
  if (size < elastic.min_replicas || size > elastic.replicas) return std::nullopt;
  return size;
}

int rank_to_add(const Spec& spec) {
  int rank = 0;
  for (std::size_t i = 0; i <= spec.elastic->role; ++i) rank += spec.roles[i].replicas;
  return rank;
}

std::string sized_fingerprint(const std::string& fingerprint, const Spec& spec) {
  if (!spec.elastic) return fingerprint;
  return fingerprint + "-" + std::to_string(spec.elastic->min_replicas) + "-" +
         std::to_string(spec.elastic->replicas);
}

std::string role_fingerprint(const std::string& fingerprint, const Spec& spec,
                             const std::string& role) {
  if (!spec.elastic || spec.roles[spec.elastic->role].name == role) return fingerprint;
  return fingerprint + "-" + role;
}

std::string elastic_selector(const TrainingJob& job) {
  return std::string(contract::kLabelJobUid) + "=" + job.metadata.uid + "," +
         std::string(contract::kLabelRole) + "=" + job.spec.roles[job.spec.elastic->role].name;
}

}  // namespace paceline::api
