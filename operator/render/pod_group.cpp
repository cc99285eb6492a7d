// SPDX-License-Identifier: Apache-2.0
#include "operator/render/pod_group.hpp"

#include <algorithm>
#include <array>

#include "operator/render/owner.hpp"

namespace paceline::render {
namespace {

using nlohmann::json;

constexpr std::array kSchedulers{
    GangScheduler{api::Backend::kVolcano, "volcano", "scheduling.volcano.sh", "v1beta1"},
    // The name that its own manifests give the scheduler.
    GangScheduler{api::Backend::kCoscheduling, "scheduler-plugins-scheduler", "scheduling.x-k8s.io",
                  "v1alpha1"},
};

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
  json spec = {{"minMember", api::replica_count(job.spec)}};
  if (scheduler.backend == api::Backend::kVolcano) {
    // Coscheduling refuses a gang by its minResources, and does not look again when pods end.
    spec["minResources"] = quantities(inputs.resources);
    if (!inputs.queue.empty()) spec["queue"] = inputs.queue;
    if (!inputs.priority_class.empty()) spec["priorityClassName"] = inputs.priority_class;
  }
  return {{"apiVersion", std::string(scheduler.group) + "/" + std::string(scheduler.version)},
          {"kind", "PodGroup"},
          {"metadata",
           {{"name", name},
            {"namespace", job.metadata.name_space},
            {"labels", {{contract::kLabelJob, job.metadata.name}}},
            {"ownerReferences", json::array({owner_reference(job)})}}},
          {"spec", std::move(spec)}};
}

void join_pod_group(json& pod, const std::string& group, const GangScheduler& scheduler,
                    const std::vector<std::string>& avoid) {
  json& spec = pod["spec"];
  const json named = spec.value("schedulerName", json());
  if (!named.is_string() || named == "") spec["schedulerName"] = scheduler.name;
  if (scheduler.backend == api::Backend::kVolcano) {
    pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] = group;
  } else {
    pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = group;
  }
  if (!avoid.empty()) stay_off(spec, avoid);
}

}  // namespace paceline::render
