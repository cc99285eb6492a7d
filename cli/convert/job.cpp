// SPDX-License-Identifier: Apache-2.0
#include "cli/convert/job.hpp"

#include <algorithm>
#include <array>

#include "common/contract/labels.hpp"

namespace paceline::cli {
namespace {

constexpr std::size_t kMostJobName = 36;
constexpr std::size_t kMostRoleName = 20;

/// A DNS label of at most `most` bytes that is as near as possible to the name.
std::string as_label(const std::string& name, std::size_t most, const std::string& otherwise) {
  std::string label;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0) {
      label += static_cast<char>(std::tolower(byte));
    } else if (!label.empty() && label.back() != '-') {
      label += '-';
    }
  }
  label = label.substr(0, most);
  while (!label.empty() && label.back() == '-') label.pop_back();
  return label.empty() ? otherwise : label;
}

void put(Json& object, const char* key, const std::string& text) {
  if (!text.empty()) object[key] = text;
}

const NewRole* elastic_role(const NewJob& job) {
  if (!job.elastic) return nullptr;
  const auto role = std::find_if(job.roles.rbegin(), job.roles.rend(), [](const NewRole& one) {
    return one.kind == contract::RoleKind::kWorker;
  });
  return role == job.roles.rend() ? nullptr : &*role;
}

/// Bounds that leave out the present number are widened to it.
Json elastic_document(const NewElastic& elastic, const NewRole& role) {
  return {
      {"role", role.name},
      {"replicas", role.replicas},
      {"minReplicas",
       std::min(std::max<std::int64_t>(1, elastic.fewest.value_or(role.replicas)), role.replicas)},
      {"maxReplicas", std::max(elastic.most.value_or(role.replicas), role.replicas)}};
}

Json role_document(const NewRole& role, bool elastic) {
  Json document = {{"name", role.name}};
  if (role.kind != contract::RoleKind::kWorker) document["kind"] = contract::to_string(role.kind);
  if (!elastic) document["replicas"] = role.replicas;
  if (role.processes) document["processes"] = *role.processes;
  put(document, "startAfter", role.start_after);
  document["template"] = role.pod_template;
  return document;
}

/// Takes a map of strings; keys that tools write for themselves are left out.
Json read_map(Fields& metadata, std::string_view key) {
  Json kept = Json::object();
  const Json* map = metadata.object(key);
  if (map == nullptr) return kept;
  for (const auto& [name, value] : map->items()) {
    if (name != "kubectl.kubernetes.io/last-applied-configuration") kept[name] = value;
  }
  return kept;
}

/// Labels by which Kueue finds a job. Those for every kind of job stay.
void read_kueue_labels(NewJob& job, Notes& notes) {
  constexpr std::string_view kPrefix = "kueue.x-k8s.io/";
  Json kept = Json::object();
  for (const auto& [name, value] : job.labels.items()) {
    const bool of_kueue = name.starts_with(kPrefix);
    job.kueue = job.kueue || of_kueue;
    if (!of_kueue || name == std::string(kPrefix) + "queue-name" ||
        name == std::string(kPrefix) + "priority-class") {
      kept[name] = value;
    } else {
      notes.drop("metadata.labels." + name, &value, "it is not for TrainingJobs",
                 "look at spec.scheduling of the TrainingJob");
    }
  }
  job.labels = std::move(kept);
}

}  // namespace

Json to_document(const NewJob& job) {
  Json document;
  document["apiVersion"] = contract::kApiVersion;
  document["kind"] = "TrainingJob";
  Json& metadata = document["metadata"] = {{"name", job.name}};
  put(metadata, "namespace", job.name_space);
  if (!job.labels.empty()) metadata["labels"] = job.labels;
  if (!job.annotations.empty()) metadata["annotations"] = job.annotations;
  Json& spec = document["spec"] = Json::object();
  spec["framework"] = {{"type", job.framework}};
  if (job.processes) spec["framework"]["processesPerReplica"] = *job.processes;
  if (job.passthrough) spec["framework"]["launcher"] = "Passthrough";
  Json& roles = spec["roles"] = Json::array();
  const NewRole* elastic = elastic_role(job);
  for (const NewRole& role : job.roles) roles.push_back(role_document(role, &role == elastic));
  if (elastic != nullptr) spec["elastic"] = elastic_document(*job.elastic, *elastic);
  Json scheduling = Json::object();
  put(scheduling, "queue", job.queue);
  put(scheduling, "priorityClassName", job.priority_class);
  put(scheduling, "gangTimeout", job.gang_timeout);
  if (!scheduling.empty()) spec["scheduling"] = std::move(scheduling);
  if (job.max_restarts) spec["failurePolicy"] = {{"maxRestarts", *job.max_restarts}};
  if (job.rank_zero) spec["successPolicy"] = "RankZero";
  if (job.suspend) spec["suspend"] = true;
  put(spec, "activeDeadline", job.active_deadline);
  put(spec, "ttlAfterFinished", job.ttl);
  put(spec, "cleanPodPolicy", job.clean_pod_policy);
  return document;
}

void read_metadata(const Json* value, NewJob& job, Notes& notes) {
  Fields metadata(value, "metadata", notes);
  const std::string generated = metadata.text("generateName").value_or("");
  const std::string name = metadata.text("name").value_or(generated);
  job.name = as_label(name, kMostJobName, "job");
  // A job's name starts with a letter.
  if (std::isdigit(static_cast<unsigned char>(job.name.front())) != 0)
    job.name = as_label("job-" + job.name, kMostJobName, "job");
  if (name.empty()) {
    notes.add("metadata.name", nullptr, "is missing: the job is named " + job.name,
              "write another name if you like");
  } else if (job.name != name) {
    const Json shown = name;
    notes.add(generated == name ? "metadata.generateName" : "metadata.name", &shown,
              "is changed to " + job.name +
                  ": a job's name has at most 36 lower-case letters, digits and '-'",
              "write another name if you like");
  }
  job.name_space = metadata.text("namespace").value_or("");
  job.labels = read_map(metadata, "labels");
  read_kueue_labels(job, notes);
  job.annotations = read_map(metadata, "annotations");
  // What the API server wrote about the old object.
  for (const char* key : {"uid", "resourceVersion", "generation", "creationTimestamp", "selfLink",
                          "managedFields", "deletionTimestamp", "deletionGracePeriodSeconds"})
    metadata.skip(key);
  metadata.drop("ownerReferences", "the owner's controller does not know TrainingJobs",
                "change the owner to create TrainingJobs");
  metadata.drop("finalizers", "no controller would remove them", "no action is needed");
  metadata.finish();
}

void note_kueue(const NewJob& job, Notes& notes) {
  if (!job.kueue || !job.suspend) return;
  const Json shown = true;
  notes.to_do("spec.suspend", &shown,
              "is kept: Kueue suspended the job, and a TrainingJob waits for Kueue without it",
              "remove spec.suspend");
}

NewRole& add_role(NewJob& job, const std::string& name, const std::string& path, Notes& notes) {
  const auto taken = [&](const std::string& label) {
    return std::ranges::find(job.roles, label, &NewRole::name) != job.roles.end();
  };
  const std::string label = as_label(name, kMostRoleName, "role");
  std::string unique = label;
  for (int i = 2; taken(unique); ++i) {
    const std::string number = "-" + std::to_string(i);
    unique = label.substr(0, kMostRoleName - number.size()) + number;
  }
  if (unique != name) {
    const Json shown = name;
    notes.add(path, &shown,
              "is changed to " + unique +
                  ": a role's name has at most 20 lower-case letters, digits and '-'",
              "write another name if you like");
  }
  NewRole& role = job.roles.emplace_back();
  role.name = unique;
  return role;
}

void read_envelope(Fields& document, NewJob& job) {
  document.skip("apiVersion");
  document.skip("kind");
  document.skip("status");  // of the old job
  read_metadata(document.object("metadata"), job, document.notes());
}

}  // namespace paceline::cli
