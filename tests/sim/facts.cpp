// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/facts.hpp"

#include <algorithm>
#include <cstdlib>

#include "common/contract/roles.hpp"

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

std::string pinned(const json& pod) {
  const json& terms = at(pod, "spec", "affinity", "nodeAffinity",
                         "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms");
  return terms.empty() ? "" : text(terms[0]["matchFields"][0]["values"][0]);
}

}  // namespace

const JobFacts* Facts::job_of(const PodFacts& pod) const {
  const auto found = jobs.find(pod.job);
  return found != jobs.end() && found->second.uid == pod.owner ? &found->second : nullptr;
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
  facts.role = text(at(labels, "paceline.dev/role"));
  facts.rank = number_in(at(labels, "paceline.dev/node-rank"));
  facts.incarnation = number_in(at(labels, "paceline.dev/incarnation"));
  facts.deleting = meta.contains("deletionTimestamp");
  facts.node = text(at(pod, "spec", "nodeName"));
  facts.pinned = pinned(pod);
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
    if (before == nullptr || before->uid != facts.uid) read_settings(container, facts);
  }
  if (before != nullptr && before->uid == facts.uid) {
    facts.attempt = before->attempt;
    facts.restarts = before->restarts;
    facts.features = before->features;
  }
  return facts;
}

namespace {

std::vector<MemberFacts> read_members(const json& spec) {
  std::vector<contract::RoleKind> kinds;
  for (const json& role : at(spec, "roles")) {
    const auto kind =
        contract::role_kind(text(at(role, "kind"))).value_or(contract::RoleKind::kWorker);
    kinds.insert(kinds.end(), static_cast<std::size_t>(number(at(role, "replicas"))), kind);
  }
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
    members.push_back({!members.empty() && contract::fails_alone(kind, servers, scheduler),
                       contract::decides(kind, launcher), kind == contract::RoleKind::kEvaluator});
  }
  return members;
}

}  // namespace

JobFacts read_job(const json& job) {
  JobFacts facts;
  facts.name = text(at(job, "metadata", "name"));
  facts.uid = text(at(job, "metadata", "uid"));
  facts.deleting = at(job, "metadata").contains("deletionTimestamp");
  facts.edited =
      at(job, "status").contains("observedGeneration") &&
      number(at(job, "metadata", "generation")) != number(at(job, "status", "observedGeneration"));
  const json& spec = at(job, "spec");
  facts.members = read_members(spec);
  facts.replicas = static_cast<int>(facts.members.size());
  facts.max_restarts = number(at(spec, "failurePolicy", "maxRestarts"));
  facts.clean_pod_policy = text(at(spec, "cleanPodPolicy"));
  facts.has_ttl = spec.contains("ttlAfterFinished");
  const json& status = at(job, "status");
  facts.phase = text(at(status, "phase"));
  facts.reason = text(at(status, "reason"));
  facts.message = text(at(status, "message"));
  facts.attempt = number(at(status, "attempt"));
  facts.restarts = number(at(status, "restarts"));
  for (std::size_t i = 0; i < kFeatures.size(); ++i)
    facts.features[i] = text(at(status, "acceleration", kFeatures[i][0]));
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
  facts.tainted = !at(node, "spec", "taints").empty();
  return facts;
}

}  // namespace paceline::sim
