// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/facts.hpp"

#include <algorithm>
#include <cstdlib>

#include "common/contract/roles.hpp"
#include "operator/api/features/compression.hpp"
#include "tests/sim/job.hpp"

namespace paceline::sim {
namespace {

using nlohmann::json;

const json& at(const json& object, const char* key) {
  static const json kNone;
  const auto found = object.is_object() ? object.find(key) : object.end();
  return object.is_object() && found != object.end() ? *found : kNone;
}

template <typename... Keys>
const json& at(const json& object, const char* key, Keys... rest) {
  return at(at(object, key), rest...);
}

std::string text(const json& value) {
  return value.is_string() ? value.get<std::string>() : std::string();
}
int number(const json& value) { return value.is_number_integer() ? value.get<int>() : 0; }
int number_in(const json& value) {
  return value.is_string() ? std::atoi(value.get_ref<const std::string&>().c_str()) : 0;
}

/// A field of status.acceleration as the ranks are told.
std::string feature(const json& acceleration, std::string_view name) {
  if (name == "compression") return api::compression_in(acceleration).value_or("");
  return text(at(acceleration, std::string(name).c_str()));
}

std::string pinned(const json& pod) {
  const json& terms = at(pod, "spec", "affinity", "nodeAffinity",
                         "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms");
  const json& field = terms.empty() ? terms : terms[0]["matchFields"][0];
  return at(field, "operator") == "In" ? text(field["values"][0]) : "";
}

}  // namespace

const JobFacts* Facts::job_of(const PodFacts& pod) const {
  const auto found = jobs.find(pod.job);
  return found != jobs.end() && found->second.uid == pod.owner ? &found->second : nullptr;
}

bool Facts::any_placeholder() const {
  return std::ranges::any_of(pods, [](const auto& entry) { return entry.second.placeholder; });
}

bool Facts::in_outage() const {
  const auto silent = static_cast<std::size_t>(
      std::ranges::count_if(nodes, [](const auto& node) { return !node.second.ready; }));
  return silent == nodes.size() || (silent > 2 && silent * 100 >= nodes.size() * 55);
}

namespace {

/// What the trainer's settings tell. They never change while the pod lives.
void read_settings(const json& container, PodFacts& facts) {
  for (const json& variable : at(container, "env")) {
    if (at(variable, "name") != "PACELINE_SETTINGS") continue;
    const json settings = json::parse(text(at(variable, "value")));
    facts.attempt = number_in(at(settings, "ATTEMPT"));
    facts.restarts = number_in(at(settings, "RESTARTS"));
    facts.gang = number_in(at(settings, "NODE_COUNT"));
    const json goodput = json::parse(text(at(settings, "GOODPUT")), nullptr, false);
    facts.seconds = number(at(goodput, "seconds"));
    for (std::size_t i = 0; i < kFeatures.size(); ++i)
      facts.features[i] = text(at(settings, kFeatures[i][1]));
  }
}

}  // namespace

PodFacts read_pod(const json& pod, const PodFacts* before) {
  PodFacts facts;
  const json& meta = at(pod, "metadata");
  facts.name = text(at(meta, "name"));
  facts.uid = text(at(meta, "uid"));
  for (const json& owner : at(meta, "ownerReferences")) {
    if (at(owner, "controller") == true) facts.owner = text(at(owner, "uid"));
  }
  const json& labels = at(meta, "labels");
  facts.job = text(at(labels, "paceline.dev/job"));
  facts.placeholder = labels.is_object() && labels.contains("paceline.dev/placeholder-for");
  if (facts.placeholder) facts.job = text(at(labels, "paceline.dev/placeholder-for"));
  facts.role = text(at(labels, "paceline.dev/role"));
  facts.rank = number_in(at(labels, "paceline.dev/node-rank"));
  facts.incarnation = number_in(at(labels, "paceline.dev/incarnation"));
  facts.deleting = meta.contains("deletionTimestamp");
  facts.kept = !at(meta, "finalizers").empty();
  facts.created = text(at(meta, "creationTimestamp"));
  facts.node = text(at(pod, "spec", "nodeName"));
  facts.pinned = pinned(pod);
  facts.group = text(at(pod, "spec", "schedulingGroup", "podGroupName"));
  if (facts.group.empty())
    facts.group = text(at(meta, "annotations", "scheduling.k8s.io/group-name"));
  facts.gated = !at(pod, "spec", "schedulingGates").empty();
  facts.phase = text(at(pod, "status", "phase"));
  for (const json& container : at(pod, "status", "containerStatuses")) {
    facts.trainer_ended = facts.trainer_ended || at(container, "state").contains("terminated");
    facts.lacks_image =
        facts.lacks_image || at(container, "state", "waiting", "reason") == "ImagePullBackOff";
    facts.succeeded = facts.succeeded || at(container, "state", "terminated", "exitCode") == 0;
  }
  facts.cpu = number_in(at(pod, "spec", "overhead", "cpu"));
  for (const json& container : at(pod, "spec", "containers")) {
    facts.image = text(at(container, "image"));
    facts.cpu += number_in(at(container, "resources", "requests", "cpu"));
    facts.slots += number_in(at(container, "resources", "limits", "paceline.dev/runtime"));
    for (const json& port : at(container, "ports"))
      facts.host_ports.push_back(number(at(port, "hostPort")));
    if (before == nullptr || before->uid != facts.uid) read_settings(container, facts);
  }
  if (before != nullptr && before->uid == facts.uid) {
    facts.attempt = before->attempt;
    facts.restarts = before->restarts;
    facts.gang = before->gang;
    facts.seconds = before->seconds;
    facts.features = before->features;
    facts.stray = before->stray;
    facts.orphaned = facts.owner.empty() && (before->orphaned || !before->owner.empty());
    // Its launcher remains what it was, whoever takes labels off its pod.
    facts.job = before->job;
    facts.role = before->role;
    facts.rank = before->rank;
    facts.incarnation = before->incarnation;
    facts.placeholder = before->placeholder;
  }
  return facts;
}

namespace {

/// `elastic`: the replicas of the role that has none of its own.
std::vector<MemberFacts> read_members(const json& spec, int elastic) {
  std::vector<contract::RoleKind> kinds;
  for (const json& role : at(spec, "roles")) {
    const auto kind =
        contract::role_kind(text(at(role, "kind"))).value_or(contract::RoleKind::kWorker);
    const int replicas = role.contains("replicas") ? number(at(role, "replicas")) : elastic;
    kinds.insert(kinds.end(), static_cast<std::size_t>(replicas), kind);
  }
  const int spares = number(at(spec, "failurePolicy", "spares"));
  if (spares > 0)
    kinds.insert(kinds.end(), static_cast<std::size_t>(spares), contract::RoleKind::kWorker);
  const auto has = [&](contract::RoleKind kind) {
    return std::ranges::find(kinds, kind) != kinds.end();
  };
  const bool servers = has(contract::RoleKind::kParameterServer) &&
                       contract::keeps_without_a_worker(text(at(spec, "framework", "type")));
  const bool scheduler = has(contract::RoleKind::kScheduler);
  const bool launcher = has(contract::RoleKind::kLauncher);
  std::vector<MemberFacts> members;
  for (const contract::RoleKind kind : kinds) {
    // Node rank 0 hosts the rendezvous, whatever its role.
    const bool alone = spares > 0 || contract::fails_alone(kind, servers, scheduler);
    members.push_back({!members.empty() && alone, contract::decides(kind, launcher),
                       kind == contract::RoleKind::kEvaluator});
  }
  return members;
}

}  // namespace

JobFacts read_job(const json& job) {
  JobFacts facts;
  facts.name = text(at(job, "metadata", "name"));
  facts.uid = text(at(job, "metadata", "uid"));
  facts.deleting = at(job, "metadata").contains("deletionTimestamp");
  facts.in_kueue = !text(at(job, "metadata", "labels", "kueue.x-k8s.io/queue-name")).empty();
  facts.edited =
      at(job, "status").contains("observedGeneration") &&
      number(at(job, "metadata", "generation")) != number(at(job, "status", "observedGeneration"));
  const json& spec = at(job, "spec");
  facts.fewest = number(at(spec, "elastic", "minReplicas"));
  facts.most = number(at(spec, "elastic", "maxReplicas"));
  facts.size = number(at(job, "status", "elastic", "replicas"));
  facts.wanted = number(at(spec, "elastic", "replicas"));
  facts.members =
      read_members(spec, facts.size > 0 ? facts.size : number(at(spec, "elastic", "replicas")));
  facts.replicas = static_cast<int>(facts.members.size());
  facts.spares = number(at(spec, "failurePolicy", "spares"));
  facts.max_restarts = number(at(spec, "failurePolicy", "maxRestarts"));
  for (const json& rule : at(spec, "failurePolicy", "rules"))
    facts.oom_action = text(at(rule, "action"));
  facts.clean_pod_policy = text(at(spec, "cleanPodPolicy"));
  facts.one_leaf = text(at(spec, "topology", "required")) == "Leaf";
  facts.has_ttl = spec.contains("ttlAfterFinished");
  const json& status = at(job, "status");
  facts.phase = text(at(status, "phase"));
  facts.reason = text(at(status, "reason"));
  facts.pod_group = text(at(status, "podGroup"));
  facts.message = text(at(status, "message"));
  facts.attempt = number(at(status, "attempt"));
  facts.restarts = number(at(status, "restarts"));
  facts.disruptions = number(at(status, "disruptions"));
  for (const json& node : at(status, "excludedNodes"))
    facts.excluded[text(at(node, "name"))] = text(at(node, "until"));
  facts.seconds = number(at(status, "goodput", "seconds"));
  if (at(status, "checkpoint").is_object())
    facts.saved_step = number(at(status, "checkpoint", "lastStep"));
  for (std::size_t i = 0; i < kFeatures.size(); ++i)
    facts.features[i] = feature(at(status, "acceleration"), kFeatures[i][0]);
  for (const json& condition : at(status, "conditions")) {
    if (at(condition, "type") == "Placed") facts.stage = text(at(condition, "reason"));
    const bool holds = at(condition, "status") == "True";
    if (at(condition, "type") == "Running") facts.running = holds;
    if (at(condition, "type") == "Restarting") facts.restarting = holds;
    if (at(condition, "type") == "Replacing") facts.replacing = holds;
    if (at(condition, "type") == "Replacing" && holds)
      facts.message += "; " + text(at(condition, "message"));
  }
  for (const json& node : at(status, "placement", "nodes"))
    facts.nodes.insert(facts.nodes.end(), static_cast<std::size_t>(number(at(node, "pods"))),
                       text(at(node, "name")));
  for (const json& role : at(status, "roles")) {
    if (role.contains("incarnation"))  // of each replica of a large role
      facts.incarnations.insert(facts.incarnations.end(),
                                static_cast<std::size_t>(number(at(role, "replicas"))),
                                number(at(role, "incarnation")));
    for (const json& incarnation : at(role, "incarnations"))
      facts.incarnations.push_back(number(incarnation));
  }
  return facts;
}

NodeFacts read_node(const json& node) {
  NodeFacts facts;
  facts.name = text(at(node, "metadata", "name"));
  facts.cpu = number_in(at(node, "status", "allocatable", "cpu"));
  facts.slots = number_in(at(node, "status", "allocatable", "paceline.dev/runtime"));
  for (const json& condition : at(node, "status", "conditions"))
    facts.ready = at(condition, "status") == "True";
  for (const json& taint : at(node, "spec", "taints"))
    facts.tainted = facts.tainted || at(taint, "effect") != "PreferNoSchedule";
  facts.cordoned = at(node, "spec", "unschedulable") == true;
  for (const char* label : {kLeafLabel, kRackLabel})
    facts.leaf += text(at(node, "metadata", "labels", label));
  return facts;
}

json pods_asked_for(const json& workload) {
  json sets = json::array();
  for (const json& set : workload["spec"]["podSets"]) {
    int count = set["count"];
    for (const json& given :
         workload.value("/status/reclaimablePods"_json_pointer, json::array())) {
      if (given["name"] == set["name"]) count -= given["count"].get<int>();
    }
    sets.push_back({{"name", set["name"]}, {"count", count}});
  }
  return sets;
}

int pods_with_quota(const json& workload) {
  const json asked = pods_asked_for(workload);
  int pods = 0;
  for (const json& admitted :
       workload.value("/status/admission/podSetAssignments"_json_pointer, asked)) {
    for (const json& set : asked) {
      if (set["name"] == admitted["name"])
        pods += std::min(set["count"].get<int>(), admitted["count"].get<int>());
    }
  }
  return pods;
}

}  // namespace paceline::sim
