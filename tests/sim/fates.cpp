// SPDX-License-Identifier: Apache-2.0
// What users and fate do to the simulated cluster.
#include <algorithm>
#include <array>
#include <stdexcept>

#include "common/base/timestamp.hpp"
#include "common/contract/host_ports.hpp"
#include "tests/sim/world.hpp"

namespace paceline::sim {

using nlohmann::json;

std::string World::some_job() {
  return std::next(facts().jobs.begin(),
                   static_cast<std::ptrdiff_t>(chaos_.pick(facts().jobs.size())))
      ->first;
}

void World::set_ready(const std::string& node, bool ready) {
  const json condition = {{"type", "Ready"},
                          {"status", ready ? "True" : "Unknown"},
                          {"lastTransitionTime", format_time(clock_.wall())}};
  cluster_.poke(kube::kNodes, "", node,
                json{{"status", {{"conditions", json::array({condition})}}}}.dump());
}

void World::set_taint(const std::string& node, bool tainted) {
  const json taint = {{"key", "repair"}, {"effect", "NoSchedule"}};
  const json taints = tainted ? json::array({taint}) : json::array();
  cluster_.poke(kube::kNodes, "", node, json{{"spec", {{"taints", taints}}}}.dump());
}

void World::unmark(const std::string& node) {
  cluster_.poke(kube::kNodes, "", node, R"({"spec":{"unschedulable":null,"taints":[]}})");
}

/// As `kubectl cordon`, as the same when Kubernetes has set its taint, or as Cluster Autoscaler
/// marks a candidate.
void World::mark_or_unmark(const NodeFacts& node) {
  if (node.closed()) return unmark(node.name);
  const json cordoned = {{"key", "node.kubernetes.io/unschedulable"}, {"effect", "NoSchedule"}};
  const json candidate = {{"key", "DeletionCandidateOfClusterAutoscaler"},
                          {"effect", "PreferNoSchedule"}};
  const std::array<json, 3> marks = {
      json{{"unschedulable", true}},
      json{{"unschedulable", true}, {"taints", json::array({cordoned})}},
      json{{"taints", json::array({candidate})}}};
  cluster_.poke(kube::kNodes, "", node.name,
                json{{"spec", marks[chaos_.pick(marks.size())]}}.dump());
}

void World::node_fate() {
  if (facts().nodes.empty()) return;
  const auto some_node = [this] {
    return std::next(facts().nodes.begin(),
                     static_cast<std::ptrdiff_t>(chaos_.pick(facts().nodes.size())));
  };
  if (chaos_.chance(chaos_.rates.lose_node)) {
    const auto node = some_node();
    if (const bool ready = chaos_.chance(0.6); ready != node->second.ready)
      set_ready(std::string(node->first), ready);
  }
  if (chaos_.chance(chaos_.rates.taint)) {
    const auto node = some_node();
    set_taint(std::string(node->first), !node->second.tainted);
  }
  if (chaos_.chance(chaos_.rates.mark)) mark_or_unmark(NodeFacts(some_node()->second));
  if (chaos_.chance(chaos_.rates.outage)) {
    const bool ends = facts().in_outage();
    const std::string spared = some_node()->first;
    for (const auto& [name, node] : Facts(facts()).nodes) {
      const bool ready = ends || (name == spared && chaos_.chance(0.5));
      if (node.ready != ready) set_ready(name, ready);
    }
  }
}

/// Of all blocks of ports that no bound pod of the node has a port of, but the last two.
json World::ports_for_foreigner(const std::string& node) const {
  constexpr int kLeft = 2;
  std::set<int> taken;
  for (const auto& [name, pod] : facts().pods) {
    if (pod.node != node || pod.terminal()) continue;
    for (const int port : pod.host_ports) taken.insert(contract::host_port_block(port));
  }
  json ports = json::array();
  for (int block = 0; block < contract::kMostHostPods - kLeft; ++block) {
    const int port = contract::host_port_base(block);
    if (!taken.contains(block)) ports.push_back({{"containerPort", port}, {"hostPort", port}});
  }
  return ports;
}

void World::foreign_fate() {
  if (facts().nodes.empty() || !chaos_.chance(chaos_.rates.foreign)) return;
  for (const auto& [name, pod] : facts().pods) {
    if (!name.starts_with("foreign") || chaos_.chance(0.5)) continue;
    cluster_.erase(kube::kPods, "default", std::string(name));
    return;
  }
  const auto node = std::next(facts().nodes.begin(),
                              static_cast<std::ptrdiff_t>(chaos_.pick(facts().nodes.size())));
  int used = 0;
  for (const auto& [name, pod] : facts().pods) used += pod.place() == node->first ? pod.cpu : 0;
  if (has_quota_ || used >= node->second.cpu) return;
  json container = {{"name", "c"}, {"image", "i"}, {"resources", {{"requests", {{"cpu", "1"}}}}}};
  if (foreigners_ % 3 == 1) container["ports"] = ports_for_foreigner(node->first);
  const json pod = {
      {"apiVersion", "v1"},
      {"kind", "Pod"},
      {"metadata", {{"name", "foreign" + std::to_string(foreigners_++)}, {"namespace", "default"}}},
      {"spec", {{"nodeName", node->first}, {"containers", json::array({container})}}}};
  if (!plain_->create(kube::kPods, "default", pod.dump()))
    throw std::runtime_error("cannot create a foreign pod");
}

bool World::is_obstructed() const {
  return std::ranges::any_of(facts().nodes,
                             [](const auto& node) { return node.second.closed(); }) ||
         std::ranges::any_of(facts().nodes,
                             [](const auto& node) { return node.second.shrunk(); }) ||
         std::ranges::any_of(facts().pods,
                             [](const auto& pod) { return pod.first.starts_with("foreign"); });
}

/// Inverts what the default RuntimeProfile says.
void World::turn_profile() {
  profile_is_on_ = !profile_is_on_;
  // A patch takes the other member away.
  const json small = {{"int8", {{"startStep", 9}}}, {"disabled", nullptr}};
  const json whole = {{"int8", nullptr}, {"disabled", json::object()}};
  const json acceleration = {{"mode", "Manual"},
                             {"numerics", "Lossy"},
                             {"optimizer", profile_is_on_ ? "Auto" : "Disabled"},
                             {"compression", profile_is_on_ ? small : whole},
                             {"precision", profile_is_on_ ? "O1" : "Disabled"},
                             {"cudaGraph", profile_is_on_ ? "Disabled" : "Auto"}};
  const json spec = {{"spec", {{"acceleration", acceleration}}}};
  if (cluster_.poke(kube::kRuntimeProfiles, "", "default", spec.dump())) return;
  json profile = {{"apiVersion", "paceline.dev/v1alpha1"},
                  {"kind", "RuntimeProfile"},
                  {"metadata", {{"name", "default"}}}};
  profile.update(spec);
  if (!plain_->create(kube::kRuntimeProfiles, "", profile.dump()))
    throw std::runtime_error("cannot create a profile");
}

void World::resize_some_job() {
  const std::string name = some_job();
  const JobFacts& job = facts().jobs.at(name);
  if (job.fewest == 0) return;
  const int wanted =
      job.fewest +
      static_cast<int>(chaos_.pick(static_cast<std::size_t>(job.most - job.fewest + 1)));
  (void)plain_->patch(kube::kTrainingJobs, "default", name,
                      json{{"spec", {{"elastic", {{"replicas", wanted}}}}}}.dump());
}

void World::evict_some_pod() {
  const std::string name =
      std::next(facts().pods.begin(), static_cast<std::ptrdiff_t>(chaos_.pick(facts().pods.size())))
          ->first;
  const auto cause = static_cast<Eviction>(chaos_.pick(3));
  if (facts().pods.at(name).owner.empty()) return;
  launchers_.evict(name, cause);
  if (cause == Eviction::kPreemption) (void)plain_->remove(kube::kPods, "default", name);
}

/// Actions of users, hardware and the rest of the cluster.
void World::user_or_fate() {
  const Rates& rates = chaos_.rates;
  const auto some_pod = [this] {
    return std::next(facts().pods.begin(),
                     static_cast<std::ptrdiff_t>(chaos_.pick(facts().pods.size())))
        ->first;
  };
  if (!facts().pods.empty() && chaos_.chance(rates.delete_pod)) {
    if (const std::string pod = some_pod(); !facts().pods.at(pod).owner.empty())
      (void)plain_->remove(kube::kPods, "default", pod);
  }
  if (!facts().pods.empty() && chaos_.chance(rates.kill_pod)) launchers_.kill(some_pod());
  if (!facts().pods.empty() && chaos_.chance(rates.evict)) evict_some_pod();
  if (rates.keep > 0 && chaos_.chance(0.02)) launchers_.let_go(false);
  if (chaos_.chance(rates.fail_rank)) launchers_.fail_rank();
  node_fate();
  foreign_fate();
  if (!facts().jobs.empty() && chaos_.chance(rates.delete_job)) {
    const std::string name = some_job();
    deleted_.insert(name);
    (void)plain_->remove(kube::kTrainingJobs, "default", name);
  }
  if (!facts().jobs.empty() && chaos_.chance(rates.spec_change)) {
    turn_profile();
    (void)plain_->patch(
        kube::kTrainingJobs, "default", some_job(),
        chaos_.chance(0.5) ? R"({"spec":{"suspend":true}})" : R"({"spec":{"suspend":false}})");
  }
  if (!facts().jobs.empty() && chaos_.chance(rates.resize)) resize_some_job();
  if (chaos_.chance(rates.clock_jump)) {
    clock_.jump_wall(std::chrono::seconds(chaos_.chance(0.5) ? 60 : -60));
    clock_jumped_ = true;
  }
}

}  // namespace paceline::sim
