// SPDX-License-Identifier: Apache-2.0
#include "operator/api/schedulers/backend.hpp"

#include <string>

namespace paceline::api {
namespace {

/// "" if the template names none.
std::string scheduler_name(const Role& role) {
  const auto spec = role.pod_template.find("spec");
  if (spec == role.pod_template.end() || !spec->is_object()) return "";
  const auto name = spec->find("schedulerName");
  return name != spec->end() && name->is_string() ? name->get<std::string>() : "";
}

/// Coscheduling is a plugin: its scheduler may have any name.
Backend backend_named(std::string_view scheduler) {
  return scheduler == "volcano" ? Backend::kVolcano : Backend::kNative;
}

}  // namespace

Backend backend_of(const Spec& spec) {
  if (spec.scheduling.backend != Backend::kAuto) return spec.scheduling.backend;
  return spec.roles.empty() ? Backend::kNative : backend_named(scheduler_name(spec.roles.front()));
}

void backend_as_placed(Spec& spec, const JobStatus& status) {
  if (status.placed() && status.pod_group.empty() && spec.scheduling.backend == Backend::kAuto)
    spec.scheduling.backend = Backend::kNative;
}

void check_backend(const Spec& spec, FieldErrors& errors) {
  const Backend backend = backend_of(spec);
  for (std::size_t i = 1; i < spec.roles.size(); ++i) {
    const std::string name = scheduler_name(spec.roles[i]);
    const std::string first = scheduler_name(spec.roles.front());
    if (name == first || (backend == Backend::kNative && backend_named(name) == backend)) continue;
    errors.push_back({"spec.roles[" + std::to_string(i) + "].template.spec.schedulerName", name,
                      "is not the scheduler of the first role, and a gang has one",
                      first.empty() ? "remove it, or write it in every role"
                                    : "write " + first + " in every role"});
  }
  if (backend == Backend::kNative) return;
  const auto refuse = [&](bool given, const char* field, const char* remedy) {
    if (!given) return;
    errors.push_back({field, "",
                      "is for jobs that Paceline places, and " + std::string(to_string(backend)) +
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
}

}  // namespace paceline::api
