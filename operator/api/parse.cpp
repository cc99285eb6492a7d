// SPDX-License-Identifier: Apache-2.0
#include "operator/api/parse.hpp"

#include <algorithm>
#include <functional>
#include <set>

#include "common/base/timestamp.hpp"
#include "common/contract/labels.hpp"
#include "operator/api/acceleration.hpp"
#include "operator/api/elastic.hpp"
#include "operator/api/failure_policy.hpp"
#include "operator/api/object_reader.hpp"
#include "operator/api/schedulers/kueue.hpp"
#include "operator/api/template/template_shape.hpp"

namespace paceline::api {
namespace {

constexpr std::int64_t kMaxReplicas = 10000;
constexpr std::size_t kMaxRoles = 16;
constexpr std::int64_t kMostProcesses = 64;  // in one replica
constexpr std::size_t kMaxContainers = 16;
// Job, role, index and dashes together must fit a host name of 63 bytes.
constexpr std::size_t kMaxJobName = 36;
constexpr std::size_t kMaxRoleName = 20;

bool is_dns_label(std::string_view text, std::size_t max, bool letter_first) {
  if (text.empty() || text.size() > max || text.front() == '-' || text.back() == '-') return false;
  if (letter_first && (text.front() < 'a' || text.front() > 'z')) return false;
  for (const char c : text) {
    if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-')) return false;
  }
  return true;
}

void read_metadata(const nlohmann::json& value, Metadata& metadata, FieldErrors& errors) {
  ObjectReader reader(value, "metadata", errors);
  reader.require("name", "give the job a name");
  if (const auto name = reader.string("name", 253)) {
    metadata.name = *name;
    if (!is_dns_label(*name, kMaxJobName, true)) {
      reader.error(
          "name", reader.find("name"), "cannot name a job",
          "use a lower-case letter, then lower-case letters, digits and '-', at most 36 in all");
    }
  }
  if (const auto text = reader.string("namespace", 63); text && !text->empty())
    metadata.name_space = *text;
  if (const auto text = reader.string("uid", 128)) metadata.uid = *text;
  if (const auto text = reader.string("resourceVersion", 128)) metadata.resource_version = *text;
  if (const auto number = reader.integer("generation", 0, INT64_MAX)) metadata.generation = *number;
  if (const auto text = reader.string("creationTimestamp", 64)) {
    if (const auto time = parse_time(*text)) metadata.created = *time;
  }
  metadata.deleting = reader.find("deletionTimestamp") != nullptr;
  if (const nlohmann::json* labels = reader.find("labels"); labels && labels->is_object()) {
    ObjectReader label(*labels, reader.path("labels"), errors);
    metadata.kueue_queue = label.string(kKueueQueueLabel, 63).value_or("");
    metadata.kueue_priority = label.string(kKueuePriorityLabel, 63).value_or("");
  }
  // The API server checks the other fields of metadata.
}

/// framework.processesPerReplica; nullopt: Auto, or unset.
std::optional<int> read_processes(ObjectReader& reader) {
  constexpr std::string_view key = "processesPerReplica";
  const nlohmann::json* value = reader.find(key);
  if (value == nullptr || (value->is_string() && *value == "Auto")) return std::nullopt;
  if (!value->is_number_integer()) {
    reader.error(key, value, "is not a number of processes",
                 "write a whole number from 1 to 64, or Auto");
    return std::nullopt;
  }
  const auto number = reader.integer(key, 1, kMostProcesses);
  return number ? std::optional(static_cast<int>(*number)) : std::nullopt;
}

void read_framework(const nlohmann::json& value, Framework& framework, FieldErrors& errors) {
  ObjectReader reader(value, "spec.framework", errors);
  reader.require("type", "write PyTorch, another framework, or Custom");
  if (const auto i =
          reader.one_of("type", {contract::kFrameworks.begin(), contract::kFrameworks.end()}))
    framework.type = static_cast<FrameworkType>(*i);
  framework.processes_per_replica = read_processes(reader);
  if (const auto i = reader.one_of("launcher", {"Paceline", "Passthrough"})) {
    framework.launcher = *i == 0 ? FrameworkLauncher::kPaceline : FrameworkLauncher::kPassthrough;
  }
  reader.finish();
}

void check_strings(ObjectReader& reader, std::string_view key, FieldErrors& errors) {
  const nlohmann::json* value = reader.find(key);
  if (value == nullptr) return;
  if (!value->is_array()) {
    reader.error(key, value, "is not a list",
                 "write a list of strings, [\"python3\", \"train.py\"]");
    return;
  }
  for (std::size_t i = 0; i < value->size(); ++i) {
    if ((*value)[i].is_string()) continue;
    errors.push_back({reader.path(key) + "[" + std::to_string(i) + "]", shown((*value)[i]),
                      "is not a string", "put it in quotes"});
  }
}

void check_container(const nlohmann::json& container, const std::string& path,
                     FieldErrors& errors) {
  ObjectReader reader(container, path, errors);
  if (!container.is_object()) return;
  reader.require("name", "give the container a name");
  reader.string("name", 63);
  reader.string("image", 1024);
  check_strings(reader, "command", errors);
  check_strings(reader, "args", errors);
}

void read_template(const nlohmann::json& value, const std::string& path, Role& role,
                   FieldErrors& errors) {
  ObjectReader reader(value, path, errors);
  if (!value.is_object()) return;
  role.pod_template = value;
  if (const nlohmann::json* metadata = reader.find("metadata")) {
    ObjectReader inner(*metadata, reader.path("metadata"), errors);
    for (const char* map : {"labels", "annotations"}) {
      const nlohmann::json* entries = inner.find(map);
      if (entries == nullptr) continue;
      // ObjectReader reports an error if `entries` is not an object.
      const ObjectReader noted(*entries, inner.path(map), errors);
      if (!entries->is_object()) continue;
      for (const auto& [name, text] : entries->items()) {
        if (!text.is_string())
          errors.push_back(
              {inner.path(map) + "." + name, shown(text), "is not a string", "put it in quotes"});
      }
    }
    inner.finish();
  }
  const nlohmann::json* spec =
      reader.require("spec", "write a pod spec with a container named trainer");
  reader.finish();
  if (spec == nullptr) return;
  ObjectReader pod(*spec, reader.path("spec"), errors);
  const nlohmann::json* containers = pod.require("containers", "write a container named trainer");
  if (containers == nullptr) return;
  if (!containers->is_array() || containers->empty() || containers->size() > kMaxContainers) {
    pod.error("containers", containers, "is not a list of 1 to 16 containers",
              "write a container named trainer");
    return;
  }
  for (std::size_t i = 0; i < containers->size(); ++i) {
    check_container((*containers)[i], pod.path("containers") + "[" + std::to_string(i) + "]",
                    errors);
  }
  check_template_shape(*spec, reader.path("spec"), errors);
}

void check_start_order(const std::vector<Role>& roles, FieldErrors& errors) {
  for (std::size_t i = 0; i < roles.size(); ++i) {
    const std::string path = "spec.roles[" + std::to_string(i) + "].startAfter";
    const Role* role = &roles[i];
    for (std::size_t steps = 0; !role->start_after.empty(); ++steps) {
      const auto before = std::ranges::find(roles, role->start_after, &Role::name);
      if (before == roles.end()) {
        if (role == &roles[i])
          errors.push_back({path, role->start_after, "is no role of this job",
                            "write the name of the role that must have started before"});
        break;
      }
      if (steps == roles.size()) {
        errors.push_back({path, roles[i].start_after, "waits for a role that waits for it",
                          "remove one of the startAfter fields"});
        break;
      }
      role = &*before;
    }
  }
}

/// `elastic`: the role whose replicas spec.elastic says.
void read_roles(const nlohmann::json& value, const std::string& elastic, std::vector<Role>& roles,
                FieldErrors& errors) {
  if (!value.is_array() || value.empty() || value.size() > kMaxRoles) {
    errors.push_back(
        {"spec.roles", shown(value), "is not a list of 1 to 16 roles", "write at least one role"});
    return;
  }
  std::set<std::string> names;
  std::int64_t total = 0;
  for (std::size_t i = 0; i < value.size(); ++i) {
    const std::string path = "spec.roles[" + std::to_string(i) + "]";
    ObjectReader reader(value[i], path, errors);
    Role& role = roles.emplace_back();
    reader.require("name", "give the role a name, such as worker");
    if (const auto name = reader.string("name", 253)) {
      role.name = *name;
      if (!is_dns_label(*name, kMaxRoleName, false)) {
        reader.error("name", reader.find("name"), "cannot name a role",
                     "use lower-case letters, digits and '-', at most 20");
      } else if (!names.insert(*name).second) {
        reader.error("name", reader.find("name"), "is used by two roles",
                     "give every role its own name");
      }
    }
    if (elastic.empty() || role.name != elastic) {
      reader.require("replicas", "write how many pods the role has");
    } else if (reader.find("replicas") != nullptr) {
      reader.error("replicas", reader.find("replicas"), "contradicts spec.elastic, which sets it",
                   "remove it, or remove spec.elastic");
    }
    if (const auto n = reader.integer("replicas", 1, kMaxReplicas))
      role.replicas = static_cast<int>(*n);
    total += role.replicas;
    if (const auto k =
            reader.one_of("kind", {contract::kRoleKinds.begin(), contract::kRoleKinds.end()}))
      role.kind = static_cast<RoleKind>(*k);
    if (const auto n = reader.integer("processes", 1, kMostProcesses))
      role.processes = static_cast<int>(*n);
    role.start_after = reader.string("startAfter", kMaxRoleName).value_or("");
    if (const nlohmann::json* pod_template = reader.require("template", "write a pod template")) {
      read_template(*pod_template, reader.path("template"), role, errors);
    }
    reader.finish();
  }
  check_start_order(roles, errors);
  if (total > kMaxReplicas) {
    errors.push_back({"spec.roles", std::to_string(total), "pods in all are too many",
                      "write at most 10000 over all roles"});
  }
}

void read_scheduling(const nlohmann::json& value, Scheduling& scheduling, FieldErrors& errors) {
  ObjectReader reader(value, "spec.scheduling", errors);
  if (const auto text = reader.string("queue", 63)) scheduling.queue = *text;
  if (const auto text = reader.string("priorityClassName", 253))
    scheduling.priority_class_name = *text;
  if (const auto time = reader.duration("gangTimeout")) {
    scheduling.gang_timeout = *time;
    if (*time < std::chrono::seconds(1)) {
      reader.error("gangTimeout", reader.find("gangTimeout"), "is too short", "write at least 1s");
    }
  }
  if (const auto n = reader.integer("podsPerNode", 1, kMaxReplicas))
    scheduling.pods_per_node = static_cast<int>(*n);
  if (const auto i = reader.one_of("provision", {"Auto", "ProvisioningRequest", "CapacityBuffer",
                                                 "Placeholders", "Disabled"}))
    scheduling.provision = static_cast<Provision>(*i);
  if (const auto i = reader.one_of(
          "backend", {"Auto", "Native", "Volcano", "Coscheduling", "PodGroup", "KAI"}))
    scheduling.backend = static_cast<Backend>(*i);
  reader.finish();
}

void read_network(const nlohmann::json& value, Network& network, FieldErrors& errors) {
  ObjectReader reader(value, "spec.network", errors);
  if (const auto i = reader.one_of("gpuDirect", {"Required", "Preferred", "Disabled"})) {
    constexpr GpuDirect kChoices[] = {GpuDirect::kRequired, GpuDirect::kPreferred,
                                      GpuDirect::kDisabled};
    network.gpu_direct = kChoices[*i];
  }
  reader.finish();
}

void read_topology(const nlohmann::json& value, Spec& spec, FieldErrors& errors) {
  ObjectReader reader(value, "spec.topology", errors);
  const auto level = [&reader](std::string_view key) -> std::optional<TopologyLevel> {
    const auto i = reader.one_of(key, {kTopologyLevels.begin(), kTopologyLevels.end()});
    return i ? std::optional(static_cast<TopologyLevel>(*i)) : std::nullopt;
  };
  spec.required_topology = level("required");
  spec.preferred_topology = level("preferred");
  if (spec.required_topology && spec.preferred_topology >= spec.required_topology)
    reader.error("preferred", reader.find("preferred"), "is not closer than required",
                 "write a level closer than required, or remove it");
  if (const auto time = reader.duration("preferredTimeout")) {
    spec.preferred_timeout = *time;
    const nlohmann::json* written = reader.find("preferredTimeout");
    if (reader.find("preferred") == nullptr)
      reader.error("preferredTimeout", written, "limits a wait that no field asks for",
                   "write preferred: Leaf beside it, or remove it");
    if (*time < std::chrono::seconds(1))
      reader.error("preferredTimeout", written, "is too short", "write at least 1s");
  }
  reader.finish();
}

void read_spec(const nlohmann::json& value, Spec& spec, FieldErrors& errors) {
  ObjectReader reader(value, "spec", errors);
  if (const nlohmann::json* framework =
          reader.require("framework", "write framework: {type: PyTorch}")) {
    read_framework(*framework, spec.framework, errors);
  }
  const nlohmann::json* elastic = reader.find("elastic");
  if (const nlohmann::json* roles = reader.require("roles", "write at least one role"))
    read_roles(*roles, elastic_role(elastic), spec.roles, errors);
  if (elastic != nullptr) read_elastic(*elastic, spec, errors);
  if (const nlohmann::json* scheduling = reader.find("scheduling"))
    read_scheduling(*scheduling, spec.scheduling, errors);
  if (const nlohmann::json* policy = reader.find("failurePolicy"))
    read_failure_policy(*policy, spec.failure_policy, errors);
  if (const nlohmann::json* acceleration = reader.find("acceleration")) {
    ObjectReader choice(*acceleration, "spec.acceleration", errors);
    spec.runtime_profile = choice.string("runtimeProfileName", 253).value_or("");
    spec.acceleration = read_acceleration(choice);
    choice.finish();
  }
  if (const nlohmann::json* network = reader.find("network"))
    read_network(*network, spec.network, errors);
  if (const nlohmann::json* topology = reader.find("topology"))
    read_topology(*topology, spec, errors);
  if (const auto i = reader.one_of("successPolicy", {"AllRanks", "RankZero"})) {
    spec.success_policy = *i == 0 ? SuccessPolicy::kAllRanks : SuccessPolicy::kRankZero;
  }
  spec.suspend = reader.boolean("suspend").value_or(false);
  spec.active_deadline = reader.duration("activeDeadline");
  spec.ttl_after_finished = reader.duration("ttlAfterFinished");
  if (const auto i = reader.one_of("cleanPodPolicy", {"Running", "All", "None"})) {
    constexpr CleanPodPolicy kPolicies[] = {CleanPodPolicy::kRunning, CleanPodPolicy::kAll,
                                            CleanPodPolicy::kNone};
    spec.clean_pod_policy = kPolicies[*i];
  }
  spec.managed_by = reader.string("managedBy", 253).value_or(std::string(contract::kManagedBy));
  reader.finish();
  add_spares(spec, errors);
}

}  // namespace

std::expected<RuntimeProfile, FieldErrors> parse_runtime_profile(const nlohmann::json& document) {
  FieldErrors errors;
  RuntimeProfile profile;
  ObjectReader reader(document, "", errors);
  if (const nlohmann::json* metadata = reader.require("metadata", "write metadata: {name: …}"))
    profile.name = ObjectReader(*metadata, "metadata", errors).string("name", 253).value_or("");
  if (const nlohmann::json* spec = reader.require("spec", "write spec: {acceleration: {…}}")) {
    ObjectReader fields(*spec, "spec", errors);
    if (const nlohmann::json* acceleration =
            fields.require("acceleration", "write acceleration: {mode: Auto}")) {
      ObjectReader choice(*acceleration, "spec.acceleration", errors);
      profile.acceleration = read_acceleration(choice);
      choice.finish();
    }
    fields.finish();
  }
  if (!errors.empty()) return std::unexpected(std::move(errors));
  return profile;
}

std::expected<TrainingJob, FieldErrors> parse_training_job(const nlohmann::json& document,
                                                           UnknownFields unknown) {
  FieldErrors errors;
  TrainingJob job;
  ObjectReader reader(document, "", errors);
  if (!document.is_object()) return std::unexpected(errors);
  reader.require("apiVersion", "write paceline.dev/v1alpha1");
  if (const auto text = reader.string("apiVersion", 253); text && *text != contract::kApiVersion) {
    reader.error("apiVersion", reader.find("apiVersion"), "is not known",
                 "write paceline.dev/v1alpha1");
  }
  reader.require("kind", "write TrainingJob");
  if (const auto text = reader.string("kind", 253); text && *text != "TrainingJob") {
    reader.error("kind", reader.find("kind"), "is not known", "write TrainingJob");
  }
  if (const nlohmann::json* metadata = reader.require("metadata", "write metadata: {name: …}")) {
    read_metadata(*metadata, job.metadata, errors);
  }
  if (const nlohmann::json* spec = reader.require("spec", "write what to run"))
    read_spec(*spec, job.spec, errors);
  reader.find("status");  // a known field; api::read_status reads it
  reader.finish();
  if (unknown == UnknownFields::kIgnore) std::erase_if(errors, std::mem_fn(&FieldError::unknown));
  if (!errors.empty()) return std::unexpected(std::move(errors));
  return job;
}

}  // namespace paceline::api
