// SPDX-License-Identifier: Apache-2.0
#include "cli/convert/pod_template.hpp"

#include <algorithm>
#include <array>

#include "cli/convert/environment.hpp"
#include "common/contract/labels.hpp"

namespace paceline::cli {
namespace {

struct Refused {
  std::string_view field;
  std::string_view reason;
  std::string_view remedy;
};
constexpr std::array kRefused{
    Refused{"nodeName", "Paceline chooses the nodes of the whole gang",
            "use nodeSelector if the node matters"},
    Refused{"hostname", "the host name is made of job, role and index", "no action is needed"},
    Refused{"subdomain", "the subdomain is the job's headless Service", "no action is needed"},
    Refused{"schedulingGates", "Paceline gates the gang itself", "no action is needed"},
    Refused{"priority", "it follows from the priority class",
            "write spec.scheduling.priorityClassName"},
    Refused{"preemptionPolicy", "it follows from the priority class",
            "write spec.scheduling.priorityClassName"},
    Refused{"schedulingGroup", "Paceline makes the gang itself", "no action is needed"},
    Refused{"workloadRef", "Paceline makes the gang itself", "no action is needed"},
};

/// Copies fields of the pod that need a look. Returns false if the field is copied as it is.
class Pod {
 public:
  Pod(std::string path, NewJob& job, Notes& notes)
      : path_(std::move(path)), job_(job), notes_(notes) {}

  Json carry(const Json& spec, std::span<const std::string_view> trainers) {
    Json kept = Json::object();
    const Json* host_network = member(&spec, "hostNetwork");
    host_network_ = host_network != nullptr && *host_network == true;
    for (const auto& [key, value] : spec.items()) {
      if (value.is_null() || refuse(key, value)) continue;
      Json carried = value;
      if (key == "affinity") carried = affinity(value);
      if (key == "topologySpreadConstraints") carried = spread(value);
      if (key == "containers" || key == "initContainers") carried = containers(key, value);
      const bool emptied = carried.is_structured() && carried.empty() && !value.empty();
      if (!emptied) kept[key] = std::move(carried);
    }
    name_trainer(kept, trainers);
    return kept;
  }

 private:
  void drop(const std::string& key, const Json& value, std::string_view reason,
            std::string_view remedy) {
    notes_.drop(path_ + "." + key, &value, reason, std::string(remedy));
  }

  bool refuse(const std::string& key, const Json& value) {
    const auto* const refused = std::ranges::find(kRefused, key, &Refused::field);
    if (refused != kRefused.end()) {
      drop(key, value, refused->reason, refused->remedy);
      return true;
    }
    if (key == "restartPolicy") {
      if (value != "Never")
        drop(key, value, "the launcher restarts ranks, not the kubelet",
             "spec.failurePolicy.maxRestarts says how often the gang is restarted");
      return true;
    }
    if (key == "hostNetwork") return value != true;
    if (key == "schedulerName") {
      if (value != "default-scheduler")
        drop(key, value, "Paceline places the pods of the gang itself",
             "write spec.scheduling.queue if queues share the cluster");
      return true;
    }
    if (key == "priorityClassName") {
      move_priority(value);
      return true;
    }
    return false;
  }

  void move_priority(const Json& value) {
    const std::string name = text_of(&value);
    if (job_.priority_class.empty()) job_.priority_class = name;
    notes_.add(path_ + ".priorityClassName", &value,
               job_.priority_class == name
                   ? "moves to spec.scheduling.priorityClassName"
                   : "is not carried over: the job has " + job_.priority_class + " already",
               "its preemptionPolicy must be Never");
  }

  Json affinity(const Json& value) {
    Json kept = Json::object();
    if (!value.is_object()) return value;
    for (const auto& [kind, terms] : value.items()) {
      constexpr const char* kRequired = "requiredDuringSchedulingIgnoredDuringExecution";
      Json carried = terms;
      if (kind != "nodeAffinity" && member(&terms, kRequired) != nullptr) {
        notes_.drop(path_ + ".affinity." + kind + "." + kRequired, nullptr,
                    "placement does not model it",
                    "spec.scheduling.podsPerNode: 1 puts each pod on a node of its own");
        carried.erase(kRequired);
      }
      if (!carried.empty()) kept[kind] = std::move(carried);
    }
    return kept;
  }

  Json spread(const Json& value) {
    Json kept = Json::array();
    for (std::size_t i = 0; value.is_array() && i < value.size(); ++i) {
      const Json* when = member(&value[i], "whenUnsatisfiable");
      if (when != nullptr && *when == "ScheduleAnyway") {
        kept.push_back(value[i]);
      } else {
        notes_.drop(path_ + ".topologySpreadConstraints[" + std::to_string(i) + "]", &value[i],
                    "placement does not model it", "write whenUnsatisfiable: ScheduleAnyway");
      }
    }
    return kept;
  }

  Json containers(const std::string& key, const Json& value) {
    Json kept = value;
    if (!value.is_array()) return kept;
    for (std::size_t i = 0; i < kept.size(); ++i) {
      const std::string at = path_ + "." + key + "[" + std::to_string(i) + "]";
      if (!kept[i].is_object()) continue;
      drop_host_ports(kept[i], at);
      if (key == "containers") adapt_foreign(kept[i], at, notes_);
      write_amounts(kept[i]);
    }
    return kept;
  }

  /// Amounts such as cpu: 0.5, which a TrainingJob has as texts.
  static void write_amounts(Json& container) {
    const auto resources = container.find("resources");
    if (resources == container.end() || !resources->is_object()) return;
    for (const char* key : {"limits", "requests"}) {
      const auto amounts = resources->find(key);
      if (amounts == resources->end() || !amounts->is_object()) continue;
      for (Json& amount : *amounts) {
        if (amount.is_number_float()) amount = amount.dump();
      }
    }
  }

  void drop_host_ports(Json& container, const std::string& at) {
    const auto ports = container.find("ports");
    if (ports == container.end() || !ports->is_array()) return;
    if (host_network_) {
      notes_.drop(at + ".ports", nullptr, "Paceline deals out the ports of the node",
                  "no action is needed: a program may listen without it");
      container.erase(ports);
      return;
    }
    for (std::size_t i = 0; i < ports->size(); ++i) {
      const Json* host = member(&(*ports)[i], "hostPort");
      if (host == nullptr) continue;
      notes_.drop(at + ".ports[" + std::to_string(i) + "].hostPort", host,
                  "placement does not model ports of the host", "use containerPort alone");
      (*ports)[i].erase("hostPort");
    }
  }

  /// Paceline's launcher wraps the container named trainer, else the only one.
  void name_trainer(Json& spec, std::span<const std::string_view> names) {
    const auto containers = spec.find("containers");
    if (containers == spec.end() || !containers->is_array() || containers->size() < 2) return;
    const std::string trainer(contract::kTrainerContainer);
    std::size_t chosen = containers->size();
    const auto choose = [&](std::string_view name) {
      for (std::size_t i = 0; i < containers->size() && chosen == containers->size(); ++i) {
        if (text_of(member(&(*containers)[i], "name")) == name) chosen = i;
      }
    };
    choose(trainer);
    for (const std::string_view name : names) choose(name);
    const bool guessed = chosen == containers->size();
    if (guessed) chosen = 0;
    Json& container = (*containers)[chosen];
    if (!container.is_object() || text_of(member(&container, "name")) == trainer) return;
    const Json old = container.contains("name") ? container["name"] : Json();
    container["name"] = trainer;
    notes_.add(path_ + ".containers[" + std::to_string(chosen) + "].name", &old,
               guessed ? "is changed to trainer: the first container is taken for the one that "
                         "trains"
                       : "is changed to trainer: so is called the one container that trains",
               guessed ? "if another one trains, name that one trainer"
                       : "use the new name in kubectl logs -c");
  }

  std::string path_;
  bool host_network_ = false;
  NewJob& job_;
  Notes& notes_;
};

}  // namespace

void carry_template(const Json* source, const std::string& path,
                    std::span<const std::string_view> trainers, NewJob& job, std::size_t role,
                    Notes& notes) {
  Json carried = Json::object();
  Fields fields(source, path, notes);
  Fields metadata(fields.object("metadata"), fields.path("metadata"), notes);
  for (const char* map : {"labels", "annotations"}) {
    const Json* entries = metadata.object(map);
    if (entries != nullptr && !entries->empty()) carried["metadata"][map] = *entries;
  }
  metadata.skip("creationTimestamp");
  metadata.drop("name", "pods are named after job, role and index", "no action is needed");
  metadata.drop("generateName", "pods are named after job, role and index", "no action is needed");
  metadata.drop("namespace", "pods are in the job's namespace", "no action is needed");
  metadata.finish();
  if (const Json* spec = fields.object("spec")) {
    carried["spec"] = Pod(fields.path("spec"), job, notes).carry(*spec, trainers);
  }
  fields.finish();
  NewRole& target = job.roles[role];
  target.pod_template = std::move(carried);
  std::size_t index = 0;
  if (const Json* trainer = trainer_in(target.pod_template))
    index = static_cast<std::size_t>(trainer - &target.pod_template["spec"]["containers"][0]);
  target.containers_path = fields.path("spec.containers");
  target.trainer_path = target.containers_path + "[" + std::to_string(index) + "]";
}

Json* trainer_in(Json& pod_template) {
  const auto spec = pod_template.find("spec");
  if (spec == pod_template.end() || !spec->is_object()) return nullptr;
  const auto containers = spec->find("containers");
  if (containers == spec->end() || !containers->is_array()) return nullptr;
  for (Json& container : *containers) {
    if (text_of(member(&container, "name")) == contract::kTrainerContainer) return &container;
  }
  return containers->size() == 1 && containers->front().is_object() ? &containers->front()
                                                                    : nullptr;
}

}  // namespace paceline::cli
