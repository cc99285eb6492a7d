// SPDX-License-Identifier: Apache-2.0
#include "operator/render/pod_group.hpp"

#include <algorithm>
#include <array>

#include "operator/render/owner.hpp"

namespace paceline::render {
namespace {

using nlohmann::json;

constexpr std::array kSchedulers{
    GangScheduler{api::Backend::kVolcano, "volcano", "scheduling.volcano.sh", "v1beta1",
                  "install Volcano"},
    // The name that its own manifests give the scheduler.
    GangScheduler{api::Backend::kCoscheduling, "scheduler-plugins-scheduler", "scheduling.x-k8s.io",
                  "v1alpha1", "install Coscheduling"},
    GangScheduler{api::Backend::kPodGroup, "default-scheduler", "scheduling.k8s.io", "v1beta1",
                  "run Kubernetes 1.37 with the feature gate GenericWorkload, and its API server "
                  "with --runtime-config=scheduling.k8s.io/v1beta1=true"},
    GangScheduler{api::Backend::kKai, "kai-scheduler", "scheduling.run.ai", "v2alpha2",
                  "install KAI"},
};

json gang_spec(const GangScheduler& scheduler, int pods, const PodGroupInputs& inputs) {
  json spec = {{"minMember", pods}};
  const auto add = [&](const char* field, const std::string& value) {
    if (!value.empty()) spec[field] = value;
  };
  switch (scheduler.backend) {
    case api::Backend::kVolcano:
      spec["minResources"] = quantities(inputs.resources);
      [[fallthrough]];
    case api::Backend::kKai:
      add("queue", inputs.queue);
      add("priorityClassName", inputs.priority_class);
      break;
    case api::Backend::kPodGroup:
      // Preemption takes the whole gang, or no pod of it.
      spec = {{"schedulingPolicy", {{"gang", {{"minCount", pods}}}}},
              {"disruptionMode", {{"all", json::object()}}}};
      add("priorityClassName", inputs.priority_class);
      break;
    // It refuses a gang by its minResources, and does not look again when pods end.
    case api::Backend::kCoscheduling:
    case api::Backend::kAuto:
    case api::Backend::kNative: break;
  }
  return spec;
}

/// Every term is an alternative, so each of them gets the exclusion.
void stay_off(json& spec, const std::vector<std::string>& nodes) {
  json& required =
      spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
  json& terms = required["nodeSelectorTerms"];
  if (!terms.is_array() || terms.empty()) terms = json::array({json::object()});
  for (json& term : terms) {
    // matchFields takes one value in each requirement.
    for (const std::string& node : nodes)
      term["matchFields"].push_back(
          {{"key", "metadata.name"}, {"operator", "NotIn"}, {"values", {node}}});
  }
}

}  // namespace

std::span<const GangScheduler> gang_schedulers() { return kSchedulers; }

const GangScheduler* gang_scheduler(api::Backend backend) {
  const auto found = std::ranges::find(kSchedulers, backend, &GangScheduler::backend);
  return found == kSchedulers.end() ? nullptr : &*found;
}

std::string pod_group_name(const api::TrainingJob& job, int incarnation) {
  return "trainingjob-" + job.metadata.name + "-" + job.metadata.uid.substr(0, 8) + "-" +
         std::to_string(incarnation);
}

json render_pod_group(const api::TrainingJob& job, const std::string& name,
                      const GangScheduler& scheduler, const PodGroupInputs& inputs) {
  return {{"apiVersion", std::string(scheduler.group) + "/" + std::string(scheduler.version)},
          {"kind", "PodGroup"},
          {"metadata",
           {{"name", name},
            {"namespace", job.metadata.name_space},
            {"labels", {{contract::kLabelJob, job.metadata.name}}},
            {"ownerReferences", json::array({owner_reference(job)})}}},
          {"spec", gang_spec(scheduler, api::replica_count(job.spec), inputs)}};
}

void join_pod_group(json& pod, const std::string& group, const GangScheduler& scheduler,
                    const std::vector<std::string>& avoid) {
  json& spec = pod["spec"];
  const json named = spec.value("schedulerName", json());
  if (!named.is_string() || named == "") spec["schedulerName"] = scheduler.name;
  json& metadata = pod["metadata"];
  switch (scheduler.backend) {
    case api::Backend::kVolcano:
      metadata["annotations"]["scheduling.k8s.io/group-name"] = group;
      break;
    case api::Backend::kCoscheduling:
      metadata["labels"]["scheduling.x-k8s.io/pod-group"] = group;
      break;
    case api::Backend::kPodGroup: spec["schedulingGroup"]["podGroupName"] = group; break;
    case api::Backend::kKai:
      metadata["annotations"]["pod-group-name"] = group;
      // Else KAI's podgrouper makes a PodGroup of its own for the pods of every owner.
      metadata["annotations"]["kai.scheduler/skip-podgrouper"] = "true";
      break;
    case api::Backend::kAuto:
    case api::Backend::kNative: break;
  }
  if (!avoid.empty()) stay_off(spec, avoid);
}

}  // namespace paceline::render
