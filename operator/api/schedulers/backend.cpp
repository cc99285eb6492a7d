// SPDX-License-Identifier: Apache-2.0
#include "operator/api/schedulers/backend.hpp"

#include <string>

namespace paceline::api {

void backend_as_placed(Spec& spec, bool by_paceline) {
  if (by_paceline && spec.scheduling.backend == Backend::kAuto)
    spec.scheduling.backend = Backend::kNative;
}

void check_backend(const Spec& spec, FieldErrors& errors) {
  const Backend backend = backend_of(spec);
  for (std::size_t i = 1; i < spec.roles.size(); ++i) {
    const std::string name = scheduler_name(spec.roles[i]);
    const std::string first = scheduler_name(spec.roles.front());
    // Paceline pins each pod to its node, whatever scheduler binds it there.
    if (name == first || spec.scheduling.backend == Backend::kNative ||
        (backend == Backend::kNative && name != kVolcanosScheduler))
      continue;
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
