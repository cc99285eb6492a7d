// SPDX-License-Identifier: Apache-2.0
#include "operator/api/status.hpp"

#include <algorithm>
#include <functional>

#include "common/base/timestamp.hpp"

namespace paceline::api {
namespace {

constexpr int kMostReplicas = 10000;
// From this size on a list is written in its short form.
constexpr std::size_t kLongList = 200;

std::string text(const nlohmann::json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : "";
}

std::int64_t number(const nlohmann::json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_number_integer() ? it->get<std::int64_t>() : 0;
}

const nlohmann::json& list(const nlohmann::json& object, const char* key) {
  static const nlohmann::json kEmpty = nlohmann::json::array();
  const auto it = object.find(key);
  return it != object.end() && it->is_array() ? *it : kEmpty;
}

std::optional<WallTime> time(const nlohmann::json& object, const char* key) {
  const auto parsed = parse_time(text(object, key));
  return parsed ? std::optional(*parsed) : std::nullopt;
}

void put(nlohmann::json& object, const char* key, const std::string& value) {
  if (!value.empty()) object[key] = value;
}

RoleStatus read_role(const nlohmann::json& value) {
  RoleStatus role{text(value, "name"),
                  static_cast<int>(number(value, "replicas")),
                  static_cast<int>(number(value, "ready")),
                  static_cast<int>(number(value, "succeeded")),
                  static_cast<int>(number(value, "failed")),
                  {}};
  for (const auto& n : list(value, "incarnations"))
    role.incarnations.push_back(n.is_number_integer() ? n.get<int>() : 0);
  if (value.contains("incarnation"))
    role.incarnations.assign(static_cast<std::size_t>(std::clamp(role.replicas, 0, kMostReplicas)),
                             static_cast<int>(number(value, "incarnation")));
  return role;
}

nlohmann::json write_role(const RoleStatus& role) {
  nlohmann::json value = {{"name", role.name},
                          {"replicas", role.replicas},
                          {"ready", role.ready},
                          {"succeeded", role.succeeded},
                          {"failed", role.failed}};
  const std::vector<int>& all = role.incarnations;
  const bool same = std::ranges::adjacent_find(all, std::ranges::not_equal_to{}) == all.end();
  const bool fits = all.size() == static_cast<std::size_t>(role.replicas);
  if (all.size() >= kLongList && same && fits) {
    value["incarnation"] = all.front();
  } else {
    value["incarnations"] = all;
  }
  return value;
}

}  // namespace

const Condition* JobStatus::find(std::string_view type) const {
  const auto it = std::find_if(conditions.begin(), conditions.end(),
                               [&](const Condition& c) { return c.type == type; });
  return it == conditions.end() ? nullptr : &*it;
}

bool JobStatus::is_true(std::string_view type) const {
  const Condition* condition = find(type);
  return condition != nullptr && condition->status == "True";
}

bool JobStatus::is(std::string_view type, std::string_view reason) const {
  const Condition* condition = find(type);
  return condition != nullptr && condition->reason == reason;
}

std::vector<std::string> JobStatus::nodes() const {
  constexpr std::size_t kMost = 100'000;  // more than any job has: a status may say anything
  std::vector<std::string> nodes;
  for (const PlacedNode& node : placement) {
    const std::size_t pods = static_cast<std::size_t>(std::clamp(node.pods, 0, 10000));
    nodes.insert(nodes.end(), std::min(pods, kMost - nodes.size()), node.name);
  }
  return nodes;
}

void JobStatus::set_nodes(const std::vector<std::string>& nodes) {
  placement.clear();
  for (const std::string& node : nodes) {
    if (!placement.empty() && placement.back().name == node) {
      ++placement.back().pods;
    } else {
      placement.push_back({node, 1});
    }
  }
}

JobStatus read_status(const nlohmann::json& object) {
  JobStatus status;
  const auto it = object.is_object() ? object.find("status") : object.end();
  if (!object.is_object() || it == object.end() || !it->is_object()) return status;
  const nlohmann::json& value = *it;
  status.observed_generation = number(value, "observedGeneration");
  status.phase = text(value, "phase");
  status.queue = text(value, "queue");
  status.pod_group = text(value, "podGroup");
  if (value.contains("totalPods"))
    status.pod_counts = PodCounts{static_cast<int>(number(value, "readyPods")),
                                  static_cast<int>(number(value, "totalPods"))};
  status.reason = text(value, "reason");
  status.message = text(value, "message");
  status.attempt = static_cast<int>(number(value, "attempt"));
  status.restarts = static_cast<int>(number(value, "restarts"));
  status.disruptions = static_cast<int>(number(value, "disruptions"));
  status.start_time = time(value, "startTime");
  status.completion_time = time(value, "completionTime");
  for (const auto& entry : list(value, "conditions")) {
    if (!entry.is_object()) continue;
    status.conditions.push_back({text(entry, "type"), text(entry, "status"), text(entry, "reason"),
                                 text(entry, "message"),
                                 time(entry, "lastTransitionTime").value_or(WallTime{}),
                                 number(entry, "observedGeneration")});
  }
  for (const auto& entry : list(value, "roles")) {
    if (entry.is_object()) status.roles.push_back(read_role(entry));
  }
  if (const auto elastic = value.find("elastic"); elastic != value.end() && elastic->is_object())
    status.elastic = {static_cast<int>(number(*elastic, "replicas")),
                      static_cast<int>(number(*elastic, "wanted")), text(*elastic, "selector"),
                      time(*elastic, "since"), text(*elastic, "message")};
  if (const auto placement = value.find("placement");
      placement != value.end() && placement->is_object()) {
    for (const auto& entry : list(*placement, "nodes")) {
      if (entry.is_object())
        status.placement.push_back({text(entry, "name"), static_cast<int>(number(entry, "pods"))});
    }
    if (const std::string names = text(*placement, "names"); !names.empty())
      status.placement = parse_placement_text(names);
    status.placement_where = text(*placement, "where");
    status.slots = text(*placement, "runtime") == "Slot";
    status.runtime_image = text(*placement, "runtimeImage");
    status.contract = static_cast<int>(number(*placement, "contract"));
    status.workload = text(*placement, "workload");
    status.placed_spec = text(*placement, "spec");
  }
  if (const auto acceleration = value.find("acceleration");
      acceleration != value.end() && acceleration->is_object()) {
    status.acceleration = acceleration_of_status(*acceleration);
    status.effects = acceleration->value("effects", nlohmann::json());
  }
  for (const auto& entry : list(value, "excludedNodes")) {
    if (!entry.is_object()) continue;
    const WallTime since = time(entry, "since").value_or(WallTime{});
    status.excluded_nodes.push_back({text(entry, "name"), text(entry, "message"), since,
                                     time(entry, "until").value_or(since),
                                     std::max(1, static_cast<int>(number(entry, "count")))});
  }
  if (const auto training = value.find("training"); training != value.end())
    status.training = *training;
  if (const auto goodput = value.find("goodput"); goodput != value.end() && goodput->is_object())
    status.goodput = *goodput;
  if (const auto saved = value.find("checkpoint"); saved != value.end() && saved->is_object())
    status.checkpoint = *saved;
  if (const auto culprit = value.find("culprit"); culprit != value.end()) status.culprit = *culprit;
  if (const auto findings = value.find("findings"); findings != value.end())
    status.findings = *findings;
  return status;
}

nlohmann::json write_status(const JobStatus& status) {
  nlohmann::json value = {{"observedGeneration", status.observed_generation},
                          {"attempt", status.attempt},
                          {"restarts", status.restarts},
                          {"disruptions", status.disruptions}};
  put(value, "phase", status.phase);
  put(value, "queue", status.queue);
  put(value, "podGroup", status.pod_group);
  if (const auto& counts = status.pod_counts) {
    value["readyPods"] = counts->ready;
    value["totalPods"] = counts->total;
    // A column of kubectl shows one field.
    value["ready"] = std::to_string(counts->ready) + "/" + std::to_string(counts->total);
  }
  put(value, "reason", status.reason);
  put(value, "message", status.message);
  if (status.start_time) value["startTime"] = format_time(*status.start_time);
  if (status.completion_time) value["completionTime"] = format_time(*status.completion_time);
  nlohmann::json& conditions = value["conditions"] = nlohmann::json::array();
  for (const Condition& condition : status.conditions) {
    conditions.push_back({{"type", condition.type},
                          {"status", condition.status},
                          {"reason", condition.reason},
                          {"message", condition.message},
                          {"lastTransitionTime", format_time(condition.since)},
                          {"observedGeneration", condition.observed_generation}});
  }
  nlohmann::json& roles = value["roles"] = nlohmann::json::array();
  for (const RoleStatus& role : status.roles) roles.push_back(write_role(role));
  if (const auto& elastic = status.elastic) {
    value["elastic"] = {{"replicas", elastic->replicas}, {"wanted", elastic->wanted}};
    put(value["elastic"], "selector", elastic->selector);
    if (elastic->since) value["elastic"]["since"] = format_time(*elastic->since);
    put(value["elastic"], "message", elastic->message);
  }
  if (!status.placement.empty()) {
    nlohmann::json& placement = value["placement"];
    placement["runtime"] = status.slots ? "Slot" : "Copy";
    if (status.placement.size() >= kLongList) {
      placement["names"] = placement_text(status.placement);
    } else {
      placement["nodes"] = nlohmann::json::array();
      for (const PlacedNode& node : status.placement)
        placement["nodes"].push_back({{"name", node.name}, {"pods", node.pods}});
    }
    put(placement, "where", status.placement_where);
    put(placement, "runtimeImage", status.runtime_image);
    if (status.contract > 0) placement["contract"] = status.contract;
    put(placement, "workload", status.workload);
    put(placement, "spec", status.placed_spec);
  }
  if (status.acceleration) {
    value["acceleration"] = status_of(*status.acceleration);
    if (!status.effects.is_null()) value["acceleration"]["effects"] = status.effects;
  }
  for (const ExcludedNode& node : status.excluded_nodes) {
    value["excludedNodes"].push_back({{"name", node.name},
                                      {"message", node.message},
                                      {"since", format_time(node.since)},
                                      {"until", format_time(node.until)},
                                      {"count", node.count}});
  }
  if (!status.training.is_null()) value["training"] = status.training;
  if (!status.goodput.is_null()) value["goodput"] = status.goodput;
  if (!status.checkpoint.is_null()) value["checkpoint"] = status.checkpoint;
  if (!status.culprit.is_null()) value["culprit"] = status.culprit;
  if (!status.findings.is_null()) value["findings"] = status.findings;
  return value;
}

}  // namespace paceline::api
