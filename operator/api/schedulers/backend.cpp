// SPDX-License-Identifier: Apache-2.0
#include "operator/api/schedulers/backend.hpp"

#include <string>

#include "operator/api/object_reader.hpp"

namespace paceline::api {
namespace {

using nlohmann::literals::operator""_json_pointer;

std::string path_of(std::size_t role, const char* field) {
  return "spec.roles[" + std::to_string(role) + "].template.spec." + field;
}

/// A gang has one scheduler, and the PodGroup that Paceline makes for it.
void check_templates(const Spec& spec, Backend backend, FieldErrors& errors) {
  for (std::size_t i = 0; i < spec.roles.size(); ++i) {
    const std::string name = scheduler_name(spec.roles[i]);
    const std::string first = scheduler_name(spec.roles.front());
    // Paceline pins each pod to its node, whatever scheduler binds it there.
    if (name != first && spec.scheduling.backend != Backend::kNative &&
        (backend != Backend::kNative || name == kVolcanosScheduler))
      errors.push_back({path_of(i, "schedulerName"), name,
                        "is not the scheduler of the first role, and a gang has one",
                        first.empty() ? "remove it, or write it in every role"
                                      : "write " + first + " in every role"});
    if (backend == Backend::kNative) continue;
    if (name == kVolcanosScheduler && backend != Backend::kVolcano)
      errors.push_back({path_of(i, "schedulerName"), name,
                        "does not read the PodGroups of spec.scheduling.backend: " +
                            std::string(to_string(backend)),
                        "remove it, or write spec.scheduling.backend: Volcano"});
    const nlohmann::json& pod = spec.roles[i].pod_template;
    const auto group = "/spec/schedulingGroup"_json_pointer;
    if (backend == Backend::kPodGroup && pod.contains(group))
      errors.push_back({path_of(i, "schedulingGroup"), shown(pod[group]),
                        "cannot stand here: Paceline makes the job's PodGroup", "remove it"});
  }
}

}  // namespace

std::string_view chooser_of(Backend backend) {
  return backend == Backend::kPodGroup ? "kube-scheduler" : to_string(backend);
}

void backend_as_placed(Spec& spec, bool by_paceline) {
  if (by_paceline && spec.scheduling.backend == Backend::kAuto)
    spec.scheduling.backend = Backend::kNative;
}

void check_backend(const Spec& spec, FieldErrors& errors) {
  const Backend backend = backend_of(spec);
  check_templates(spec, backend, errors);
  if (backend == Backend::kNative) return;
  const auto refuse = [&](bool given, const char* field, const char* remedy) {
    if (!given) return;
    errors.push_back({field, "",
                      "is for jobs that Paceline places, and " + std::string(chooser_of(backend)) +
                          " places this one",
                      std::string(remedy) + ", or write spec.scheduling.backend: Native" +
                          (scheduler_name(spec.roles.front()).empty()
                               ? ""
                               : " and remove schedulerName from the templates")});
  };
  refuse(spec.elastic.has_value(), "spec.elastic", "give the role replicas instead");
  refuse(spec.required_topology.has_value(), "spec.topology.required", "remove it");
  refuse(spec.scheduling.pods_per_node.has_value(), "spec.scheduling.podsPerNode", "remove it");
  refuse(spec.network.gpu_direct == GpuDirect::kRequired, "spec.network.gpuDirect",
         "write Preferred");
  if (backend == Backend::kKai && spec.scheduling.queue.empty())
    errors.push_back({"spec.scheduling.queue", "",
                      "is missing, and KAI schedules no PodGroup without a queue",
                      "write the name of a Queue of KAI"});
}

}  // namespace paceline::api
