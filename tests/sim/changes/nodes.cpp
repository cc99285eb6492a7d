// SPDX-License-Identifier: Apache-2.0
// Nodes that go, and whose names other machines get; that lose the label of their leaf; and whose
// devices are away for a while.
#include "tests/sim/world.hpp"

namespace paceline::sim {

using nlohmann::json;

namespace {

/// As while a device plugin restarts, or a kubelet reserves more for the system.
json room(int cpu, bool slots) {
  json allocatable = {{"cpu", std::to_string(cpu)}};
  if (slots) allocatable["paceline.dev/runtime"] = cpu > 0 ? "2" : "0";
  return json{{"status", {{"allocatable", allocatable}}}};
}

}  // namespace

void World::change_nodes() {
  const Rates& rates = chaos_.rates;
  const auto some_node = [this] {
    return std::next(facts().nodes.begin(),
                     static_cast<std::ptrdiff_t>(chaos_.pick(facts().nodes.size())))
        ->second;
  };
  if (chaos_.chance(rates.replace_node)) {
    if (!gone_nodes_.empty() && chaos_.chance(0.6)) {
      bring_back_node(std::string(gone_nodes_.begin()->first));
    } else if (!facts().nodes.empty()) {
      const NodeFacts node = some_node();
      gone_nodes_[node.name] = std::stoi(node.name.substr(1));
      cluster_.erase(kube::kNodes, "", node.name);
    }
  }
  if (facts().nodes.empty()) return;
  if (chaos_.chance(rates.relabel)) turn_label(some_node());
  if (chaos_.chance(rates.shrink)) {
    const NodeFacts node = some_node();
    cluster_.poke(kube::kNodes, "", node.name,
                  room(node.shrunk() ? cpu_per_node_ : 0, node.most_slots > 0).dump());
  }
}

/// Takes the label of its leaf, or gives it back.
void World::turn_label(const NodeFacts& node) {
  const std::string leaf = std::to_string(std::stoi(node.name.substr(1)) / kNodesOfLeaf);
  const json labels = {
      {has_kueue_ ? kRackLabel : kLeafLabel, node.leaf.empty() ? json(leaf) : json(nullptr)}};
  cluster_.poke(kube::kNodes, "", node.name, json{{"metadata", {{"labels", labels}}}}.dump());
}

/// Its kubelet finds pods that are bound to it, and none of their containers.
void World::bring_back_node(const std::string& name) {
  make_node(gone_nodes_.at(name));
  gone_nodes_.erase(name);
  launchers_.lose_containers(name);
}

void World::restore_nodes() {
  while (!gone_nodes_.empty()) bring_back_node(std::string(gone_nodes_.begin()->first));
  for (const auto& [name, node] : Facts(facts()).nodes) {
    if (node.leaf.empty()) turn_label(node);
    if (node.shrunk())
      cluster_.poke(kube::kNodes, "", name, room(cpu_per_node_, node.most_slots > 0).dump());
  }
}

/// As Kubernetes' garbage collector of pods does for a node that no longer exists.
void World::collect_lost_pods() {
  for (const auto& [name, pod] : Facts(facts()).pods) {
    if (gone_nodes_.contains(pod.node) && chaos_.chance(0.3))
      cluster_.erase(kube::kPods, "default", name);
  }
}

}  // namespace paceline::sim
