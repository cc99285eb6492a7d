// SPDX-License-Identifier: Apache-2.0
#include "operator/api/validate.hpp"

#include <algorithm>
#include <array>

#include "common/contract/env.hpp"
#include "common/contract/injection.hpp"
#include "common/contract/labels.hpp"
#include "operator/api/failure_policy.hpp"
#include "operator/api/object_reader.hpp"
#include "operator/api/roles.hpp"
#include "operator/api/schedulers/backend.hpp"
#include "operator/api/template/containers.hpp"

namespace paceline::api {
namespace {

const nlohmann::json* at(const nlohmann::json* object, std::string_view key) {
  if (object == nullptr || !object->is_object()) return nullptr;
  const auto it = object->find(std::string(key));
  return it == object->end() || it->is_null() ? nullptr : &*it;
}

std::string spec_path(std::size_t role) {
  return "spec.roles[" + std::to_string(role) + "].template.spec";
}

/// In an MPI job with a launcher, mpirun starts all that the other roles run.
bool needs_command(const Spec& spec, const Role& role) {
  const bool mpirun = spec.framework.type == FrameworkType::kMpi &&
                      spec.framework.launcher == FrameworkLauncher::kPaceline;
  return !mpirun || role.kind == RoleKind::kLauncher ||
         std::ranges::find(spec.roles, RoleKind::kLauncher, &Role::kind) == spec.roles.end();
}

void check_trainer(const TrainingJob& job, std::size_t index, FieldErrors& errors) {
  const Role& role = job.spec.roles[index];
  const int position = trainer_index(role);
  const std::string containers = spec_path(index) + ".containers";
  if (position < 0) {
    errors.push_back({containers, "", "has several containers and none named trainer",
                      "name the one that trains: trainer"});
    return;
  }
  const std::string path = containers + "[" + std::to_string(position) + "]";
  const nlohmann::json* trainer = trainer_of(role);
  if (strings_of(*trainer, "command").empty() && needs_command(job.spec, role)) {
    errors.push_back(
        {path + ".command", "", "is required: the launcher starts it",
         "write what the image would start, such as command: [\"python3\", \"/app/train.py\"]"});
  }
  const nlohmann::json* variables = at(trainer, "env");
  if (variables == nullptr || !variables->is_array()) return;
  for (std::size_t i = 0; i < variables->size(); ++i) {
    const nlohmann::json* name = at(&(*variables)[i], "name");
    if (name == nullptr || !name->is_string()) continue;
    const std::string& text = name->get_ref<const std::string&>();
    if (text.starts_with("PACELINE_") && !env::is_users(text)) {
      errors.push_back(
          {path + ".env[" + std::to_string(i) + "].name", text, "is set by Paceline", "remove it"});
    }
  }
}

constexpr std::array kOwned{
    OwnedField{"nodeName",
               "remove it and use nodeSelector: Paceline chooses the nodes of the whole gang"},
    OwnedField{"hostname", "remove it: it is the name of job, role and index"},
    OwnedField{"subdomain", "remove it: it is the job's headless Service"},
    OwnedField{"schedulingGates", "remove them: Paceline gates the gang itself"},
    OwnedField{"priorityClassName", "write it in spec.scheduling.priorityClassName"},
    OwnedField{"priority", "write spec.scheduling.priorityClassName"},
};

void check_volumes(const nlohmann::json& pod, const std::string& path, FieldErrors& errors) {
  const nlohmann::json* volumes = at(&pod, "volumes");
  if (volumes == nullptr || !volumes->is_array()) return;
  for (std::size_t i = 0; i < volumes->size(); ++i) {
    const nlohmann::json& volume = (*volumes)[i];
    const std::string here = path + ".volumes[" + std::to_string(i) + "]";
    const nlohmann::json* name = at(&volume, "name");
    if (name != nullptr && (*name == std::string(contract::kRuntimeVolume) ||
                            *name == std::string(contract::kStateVolume))) {
      errors.push_back(
          {here + ".name", shown(*name), "is used by Paceline", "give the volume another name"});
    }
  }
}

/// Other schedulers count what the planner does not.
constexpr std::string_view kNotModelled = "is not modelled by Paceline's placement";

void check_affinity(const nlohmann::json& pod, const std::string& path, FieldErrors& errors) {
  const nlohmann::json* affinity = at(&pod, "affinity");
  for (const char* kind : {"podAffinity", "podAntiAffinity"}) {
    if (at(at(affinity, kind), "requiredDuringSchedulingIgnoredDuringExecution") == nullptr)
      continue;
    errors.push_back(
        {path + ".affinity." + kind + ".requiredDuringSchedulingIgnoredDuringExecution", "",
         std::string(kNotModelled),
         "remove it; spec.scheduling.podsPerNode: 1 puts each pod on its own node"});
  }
  const nlohmann::json* spread = at(&pod, "topologySpreadConstraints");
  if (spread == nullptr || !spread->is_array()) return;
  for (std::size_t i = 0; i < spread->size(); ++i) {
    const nlohmann::json* when = at(&(*spread)[i], "whenUnsatisfiable");
    if (when != nullptr && *when == "ScheduleAnyway") continue;
    errors.push_back({path + ".topologySpreadConstraints[" + std::to_string(i) + "]", "",
                      std::string(kNotModelled),
                      "remove it, or write whenUnsatisfiable: ScheduleAnyway"});
  }
}

void refuse_ports(const nlohmann::json& container, const char* field, const std::string& path,
                  const std::string& what, const std::string& remedy, FieldErrors& errors) {
  const nlohmann::json* ports = at(&container, "ports");
  if (ports == nullptr || !ports->is_array()) return;
  for (std::size_t i = 0; i < ports->size(); ++i) {
    const nlohmann::json* port = at(&(*ports)[i], field);
    if (port == nullptr || *port == 0) continue;
    errors.push_back(
        {path + ".ports[" + std::to_string(i) + "]." + field, shown(*port), what, remedy});
  }
}

/// A container that requests a slot itself would have two runtimes in one place if the pod copies
/// its own.
void check_slots(const nlohmann::json& container, const std::string& path, FieldErrors& errors) {
  const std::string slot(contract::kRuntimeResource);
  for (const char* section : {"limits", "requests"}) {
    const nlohmann::json* amount = at(at(at(&container, "resources"), section), slot);
    if (amount == nullptr) continue;
    errors.push_back({path + ".resources." + section + "[" + slot + "]", shown(*amount),
                      "is asked for by Paceline where nodes offer it", "remove it"});
  }
}

void check_containers(const nlohmann::json& pod, const std::string& path, bool placed_by_paceline,
                      bool host_network, FieldErrors& errors) {
  for (const char* list : {"containers", "initContainers"}) {
    const nlohmann::json* containers = at(&pod, list);
    if (containers == nullptr || !containers->is_array()) continue;
    for (std::size_t i = 0; i < containers->size(); ++i) {
      const nlohmann::json& container = (*containers)[i];
      const std::string here = path + "." + list + "[" + std::to_string(i) + "]";
      const nlohmann::json* name = at(&container, "name");
      if (name != nullptr && *name == std::string(contract::kRuntimeInitContainer)) {
        errors.push_back({here + ".name", shown(*name), "is used by Paceline",
                          "give the container another name"});
      }
      if (host_network) {
        refuse_ports(container, "containerPort", here,
                     "would be a port of the node, which two pods there cannot share",
                     "remove it: a program may listen without it", errors);
      } else if (placed_by_paceline) {
        refuse_ports(container, "hostPort", here, std::string(kNotModelled), "remove it", errors);
      }
      check_slots(container, here, errors);
    }
  }
}

/// Paceline deals out the ports of each node to the pods in its network.
void check_host_network(const Spec& spec, const std::string& path, FieldErrors& errors) {
  const Backend backend = backend_of(spec);
  if (backend != Backend::kNative) {
    errors.push_back({path + ".hostNetwork", "true",
                      "needs a node whose ports Paceline deals out, and " +
                          std::string(chooser_of(backend)) + " chooses the nodes of this job",
                      "remove it, or write spec.scheduling.backend: Native"});
  }
  if (workers_fail_alone(spec)) {
    errors.push_back({path + ".hostNetwork", "true",
                      "would give a worker that is replaced alone other ports than the parameter "
                      "servers were told",
                      "remove it, or train without roles of kind ParameterServer"});
  }
}

void check_pod(const TrainingJob& job, std::size_t index, FieldErrors& errors) {
  const nlohmann::json* pod = at(&job.spec.roles[index].pod_template, "spec");
  if (pod == nullptr) return;
  const std::string path = spec_path(index);
  for (const OwnedField& owned : kOwned) {
    const nlohmann::json* value = at(pod, owned.field);
    const bool empty = value == nullptr || (value->is_array() && value->empty());
    if (!empty)
      errors.push_back({path + "." + std::string(owned.field), shown(*value), "cannot stand here",
                        std::string(owned.remedy)});
  }
  if (const nlohmann::json* policy = at(pod, "restartPolicy");
      policy != nullptr && *policy != "Never") {
    errors.push_back({path + ".restartPolicy", shown(*policy), "cannot stand here",
                      "remove it: the launcher restarts ranks, spec.failurePolicy says how often"});
  }
  const bool host_network = uses_host_network(job.spec.roles[index]);
  if (host_network) check_host_network(job.spec, path, errors);
  const bool placed_by_paceline = backend_of(job.spec) == Backend::kNative;
  if (placed_by_paceline) check_affinity(*pod, path, errors);
  check_volumes(*pod, path, errors);
  check_containers(*pod, path, placed_by_paceline, host_network, errors);
}

}  // namespace

std::span<const OwnedField> owned_pod_fields() { return kOwned; }

FieldErrors validate_program(const TrainingJob& job) {
  FieldErrors errors;
  for (std::size_t i = 0; i < job.spec.roles.size(); ++i) check_trainer(job, i, errors);
  check_roles(job.spec, errors);
  check_failure_rules(job.spec, errors);
  const auto& roles = job.spec.roles;
  if (requires_gpu_direct(job.spec) && std::none_of(roles.begin(), roles.end(), has_accelerators)) {
    errors.push_back({"spec.network.gpuDirect", "Required",
                      "asks for what no role can have: none asks for an accelerator",
                      "write nvidia.com/gpu into the limits of a trainer, or remove gpuDirect"});
  }
  return errors;
}

FieldErrors validate_for_cluster(const TrainingJob& job) {
  FieldErrors errors = validate_program(job);
  for (std::size_t i = 0; i < job.spec.roles.size(); ++i) check_pod(job, i, errors);
  check_backend(job.spec, errors);
  return errors;
}

}  // namespace paceline::api
