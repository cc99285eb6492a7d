// SPDX-License-Identifier: Apache-2.0
#include "operator/render/workload.hpp"

#include <algorithm>

#include "common/contract/labels.hpp"
#include "operator/api/elastic.hpp"
#include "operator/api/fingerprint.hpp"
#include "operator/api/template/containers.hpp"

namespace paceline::render {
namespace {

using nlohmann::json;

/// The topology that the user asks of Kueue by an annotation of the role's template, as for other
/// jobs; null if there is none.
json topology_request(const json& annotations) {
  if (!annotations.is_object()) return nullptr;
  const std::string prefix = "kueue.x-k8s.io/podset-";
  json request;
  for (const char* mode : {"required", "preferred"}) {
    const json level = annotations.value(prefix + mode + "-topology", json());
    if (level.is_string()) request[mode] = level;
  }
  const json any = annotations.value(prefix + "unconstrained-topology", json());
  if (any == "true") request["unconstrained"] = true;
  if (!request.is_null()) request["podIndexLabel"] = contract::kLabelReplicaIndex;
  return request;
}

json pod_set(const api::Role& role, const std::string& pod_priority) {
  json pod = {{"spec", role.pod_template.at("spec")}};
  const json metadata = role.pod_template.value("metadata", json::object());
  for (const char* part : {"labels", "annotations"}) {
    if (metadata.is_object() && metadata.contains(part)) pod["metadata"][part] = metadata[part];
  }
  pod["spec"]["restartPolicy"] = "Never";
  if (!pod_priority.empty()) pod["spec"]["priorityClassName"] = pod_priority;
  const json annotations = pod.value("/metadata/annotations"_json_pointer, json::object());
  json set = {{"name", role.name}, {"count", role.replicas}, {"template", std::move(pod)}};
  if (json request = topology_request(annotations); !request.is_null())
    set["topologyRequest"] = std::move(request);
  return set;
}

/// Asks Kueue for the level. Kueue keeps two pod sets in one domain if one of them is a single pod;
/// of others it chooses a domain for each.
void ask_for(json& sets, const api::Spec& spec, const api::LevelAsk& level) {
  std::vector<json*> asking;
  for (std::size_t i = 0; i < spec.roles.size(); ++i) {
    if (!follows_level(spec, spec.roles[i])) continue;
    sets[i]["topologyRequest"] = {{level.required ? "required" : "preferred", level.label},
                                  {"podIndexLabel", contract::kLabelReplicaIndex}};
    asking.push_back(&sets[i]);
  }
  const bool one_is_single =
      std::ranges::any_of(asking, [](const json* set) { return set->value("count", 0) == 1; });
  if (asking.size() != 2 || !one_is_single) return;
  for (json* set : asking) (*set)["topologyRequest"]["podSetGroupName"] = "together";
}

}  // namespace

bool follows_level(const api::Spec& spec, const api::Role& role) {
  const json asked = role.pod_template.value("/metadata/annotations"_json_pointer, json());
  const bool by_template =
      std::ranges::any_of(api::kTopologyAnnotations,
                          [&asked](const char* annotation) { return asked.contains(annotation); });
  if (by_template) return false;
  return api::has_accelerators(role) || std::ranges::none_of(spec.roles, api::has_accelerators);
}

std::string workload_name(const api::TrainingJob& job) {
  return "trainingjob-" + job.metadata.name + "-" + job.metadata.uid.substr(0, 8);
}

json render_workload(const api::TrainingJob& job, const WorkloadPriority& priority,
                     const std::string& pod_priority, const api::LevelAsk& level) {
  json workload = {
      {"apiVersion", "kueue.x-k8s.io/v1beta2"},
      {"kind", "Workload"},
      {"metadata",
       {{"name", workload_name(job)},
        {"namespace", job.metadata.name_space},
        {"labels", {{contract::kLabelJob, job.metadata.name}}},
        {"annotations",
         {{api::kSpecAnnotation, api::sized_fingerprint(api::fingerprint(job.spec), job.spec)}}},
        {"ownerReferences", json::array({{{"apiVersion", contract::kApiVersion},
                                          {"kind", "TrainingJob"},
                                          {"name", job.metadata.name},
                                          {"uid", job.metadata.uid},
                                          {"controller", true},
                                          {"blockOwnerDeletion", false}}})}}},
      {"spec",
       {{"queueName", api::named_queue(job)},
        {"priority", priority.value},
        {"podSets", json::array()}}}};
  if (!priority.ref.name.empty()) {
    workload["spec"]["priorityClassRef"] = {
        {"group", priority.ref.of_kueue ? "kueue.x-k8s.io" : "scheduling.k8s.io"},
        {"kind", priority.ref.of_kueue ? "WorkloadPriorityClass" : "PriorityClass"},
        {"name", priority.ref.name}};
  }
  json& sets = workload["spec"]["podSets"];
  for (const api::Role& role : job.spec.roles) sets.push_back(pod_set(role, pod_priority));
  // With quota for a part of them, the job starts smaller.
  if (const auto& elastic = job.spec.elastic)
    sets[elastic->role]["minCount"] = elastic->min_replicas;
  if (!level.label.empty()) ask_for(sets, job.spec, level);
  return workload;
}

}  // namespace paceline::render
