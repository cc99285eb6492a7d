// SPDX-License-Identifier: Apache-2.0
#include "operator/observe/kueue.hpp"

#include <algorithm>
#include <functional>
#include <map>

#include "operator/observe/project.hpp"

namespace paceline::observe {
namespace {

using kube::at;
using kube::items;
using simdjson::dom::element;

constexpr std::int64_t kMostPods = 100'000;  // more than any job has

int pods(const simdjson::simdjson_result<element>& count) {
  return static_cast<int>(std::clamp<std::int64_t>(kube::number(count), 0, kMostPods));
}

nlohmann::json document(const simdjson::simdjson_result<element>& value,
                        const nlohmann::json& otherwise) {
  element found;
  if (value.get(found) != simdjson::SUCCESS) return otherwise;
  nlohmann::json read = nlohmann::json::parse(simdjson::minify(found), nullptr, false);
  return read.type() == otherwise.type() ? read : otherwise;
}

api::NodeLabels labels(const simdjson::simdjson_result<element>& map) {
  api::NodeLabels labels;
  for (const auto field : kube::fields(map))
    labels.emplace_back(std::string(field.key), std::string(text(field.value)));
  return labels;
}

/// The value of one topology level for the domain `index` of a slice.
std::string level_value(const element& level, std::size_t index) {
  if (const std::string_view all = text(at(level, "universal")); !all.empty())
    return std::string(all);
  std::string value(text(at(level, "individual", "prefix")));
  std::size_t i = 0;
  for (const element root : items(at(level, "individual", "roots"))) {
    if (i++ == index) value += text(root);
  }
  return value += text(at(level, "individual", "suffix"));
}

std::vector<api::PodShare> read_topology(const simdjson::simdjson_result<element>& assignment) {
  std::vector<std::string> keys;
  for (const element key : items(at(assignment, "levels"))) keys.emplace_back(text(key));
  std::vector<api::PodShare> shares;
  for (const element slice : items(at(assignment, "slices"))) {
    std::vector<int> counts;
    for (const element count : items(at(slice, "podCounts", "individual")))
      counts.push_back(pods(simdjson::simdjson_result<element>(element(count))));
    if (counts.empty())
      counts.assign(static_cast<std::size_t>(pods(at(slice, "domainCount"))),
                    pods(at(slice, "podCounts", "universal")));
    for (std::size_t i = 0; i < counts.size(); ++i) {
      api::PodShare& share = shares.emplace_back();
      share.pods = counts[i];
      std::size_t level = 0;
      for (const element values : items(at(slice, "valuesPerLevel"))) {
        if (level < keys.size()) share.labels.emplace_back(keys[level], level_value(values, i));
        ++level;
      }
    }
  }
  return shares;
}

RoleAdmission& admission_of(std::vector<RoleAdmission>& roles, std::string_view role) {
  const auto known = std::ranges::find(roles, role, &RoleAdmission::role);
  if (known != roles.end()) return *known;
  RoleAdmission& added = roles.emplace_back();
  added.role = role;
  return added;
}

/// By pod set: how many pods the Workload is for, without those whose quota was given back.
std::map<std::string, int, std::less<>> pods_asked_for(const element& workload) {
  std::map<std::string, int, std::less<>> asked;
  for (const element set : items(at(workload, "spec", "podSets")))
    asked[std::string(text(at(set, "name")))] = pods(at(set, "count"));
  for (const element given : items(at(workload, "status", "reclaimablePods")))
    asked[std::string(text(at(given, "name")))] -= pods(at(given, "count"));
  return asked;
}

void read_admission(const element& workload, WorkloadView& view) {
  const auto asked = pods_asked_for(workload);
  for (const element set : items(at(workload, "status", "admission", "podSetAssignments"))) {
    RoleAdmission& role = admission_of(view.roles, text(at(set, "name")));
    for (const auto flavor : kube::fields(at(set, "flavors"))) {
      const std::string name(text(flavor.value));
      if (std::ranges::find(role.flavors, name) == role.flavors.end()) role.flavors.push_back(name);
    }
    // Kueue may have admitted a part of them. Without a count it has admitted all.
    const auto most = asked.find(role.role);
    role.pods = most == asked.end() ? 0 : most->second;
    if (const int admitted = pods(at(set, "count")); admitted > 0)
      role.pods = std::min(role.pods, admitted);
    role.grant.shares = read_topology(at(set, "topologyAssignment"));
  }
  for (const element check : items(at(workload, "status", "admissionChecks"))) {
    for (const element update : items(at(check, "podSetUpdates"))) {
      api::PodGrant& grant = admission_of(view.roles, text(at(update, "name"))).grant;
      const api::NodeLabels selector = labels(at(update, "nodeSelector"));
      grant.node_selector.insert(grant.node_selector.end(), selector.begin(), selector.end());
      for (auto& toleration : document(at(update, "tolerations"), nlohmann::json::array()))
        grant.tolerations.push_back(std::move(toleration));
      grant.labels.update(document(at(update, "labels"), nlohmann::json::object()));
      grant.annotations.update(document(at(update, "annotations"), nlohmann::json::object()));
    }
  }
}

/// What the operator asked for the roles whose templates do not ask by themselves.
api::LevelAsk read_level(const element& workload) {
  for (const element set : items(at(workload, "spec", "podSets"))) {
    const bool by_template =
        std::ranges::any_of(api::kTopologyAnnotations, [&set](const char* annotation) {
          return !text(at(set, "template", "metadata", "annotations", annotation)).empty();
        });
    if (by_template) continue;
    for (const char* mode : {"required", "preferred"}) {
      const std::string_view label = text(at(set, "topologyRequest", mode));
      if (!label.empty()) return {std::string(label), std::string_view(mode) == "required"};
    }
  }
  return {};
}

void read_conditions(const element& workload, WorkloadView& view) {
  std::string no_quota;
  std::string not_admitted;  // while quota is reserved: the admission checks
  for (const element condition : items(at(workload, "status", "conditions"))) {
    const std::string_view type = text(at(condition, "type"));
    const bool is_true = text(at(condition, "status")) == "True";
    if (type == "QuotaReserved") view.quota_reserved = is_true;
    if (type == "Admitted") view.admitted = is_true;
    if (type == "Finished") view.finished = is_true;
    if (type == "PodsReady") view.pods_ready = is_true;
    if (type == "Evicted" && is_true) {
      view.evicted = true;
      view.eviction = text(at(condition, "reason"));
      view.message = text(at(condition, "message"));
    }
    if (type == "QuotaReserved" && !is_true) no_quota = text(at(condition, "message"));
    if (type == "Admitted" && !is_true) not_admitted = text(at(condition, "message"));
  }
  if (view.evicted && view.quota_reserved) return;
  view.message = std::move(view.quota_reserved ? not_admitted : no_quota);
}

}  // namespace

Result<WorkloadView> project_workload(std::string_view json) {
  return with_json<WorkloadView>(json, [](const element& workload, WorkloadView& view) {
    for (const element owner : items(at(workload, "metadata", "ownerReferences"))) {
      if (text(at(owner, "kind")) != "TrainingJob" || !kube::boolean(at(owner, "controller")))
        continue;
      view.job_uid = text(at(owner, "uid"));
      view.job_name = text(at(owner, "name"));
    }
    if (view.job_uid.empty()) return;  // another controller's: nothing of it is needed
    view.queue = text(at(workload, "spec", "queueName"));
    view.spec = text(at(workload, "metadata", "annotations", api::kSpecAnnotation));
    view.priority = {std::string(text(at(workload, "spec", "priorityClassRef", "name"))),
                     text(at(workload, "spec", "priorityClassRef", "group")) == "kueue.x-k8s.io"};
    view.level = read_level(workload);
    for (const element given : items(at(workload, "status", "reclaimablePods")))
      view.gave_back = view.gave_back || pods(at(given, "count")) > 0;
    view.deleting = !text(at(workload, "metadata", "deletionTimestamp")).empty();
    read_conditions(workload, view);
    read_admission(workload, view);
  });
}

Result<LocalQueueView> project_local_queue(std::string_view json) {
  return with_json<LocalQueueView>(json, [](const element& queue, LocalQueueView& view) {
    // Kueue lists every flavor here, also those of which nothing is reserved.
    for (const element flavor : items(at(queue, "status", "flavorsReservation")))
      view.flavors.emplace_back(text(at(flavor, "name")));
  });
}

Result<FlavorView> project_flavor(std::string_view json) {
  return with_json<FlavorView>(json, [](const element& flavor, FlavorView& view) {
    view.node_labels = labels(at(flavor, "spec", "nodeLabels"));
    view.tolerations = document(at(flavor, "spec", "tolerations"), nlohmann::json::array());
    view.topology = text(at(flavor, "spec", "topologyName"));
  });
}

Result<TopologyView> project_topology(std::string_view json) {
  return with_json<TopologyView>(json, [](const element& topology, TopologyView& view) {
    for (const element level : items(at(topology, "spec", "levels"))) {
      if (const std::string_view label = text(at(level, "nodeLabel")); !label.empty())
        view.levels.emplace_back(label);
    }
  });
}

}  // namespace paceline::observe
