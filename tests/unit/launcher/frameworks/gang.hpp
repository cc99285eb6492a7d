// SPDX-License-Identifier: Apache-2.0
// A gang for tests of the environment: pods by role, and the variables that one process gets.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/frameworks/environment.hpp"

namespace paceline::frameworks {

struct Pods {
  std::string role;
  contract::RoleKind kind = contract::RoleKind::kWorker;
  int replicas = 1;
  int processes = 1;
};

/// Pods in the order of the roles, with the addresses 10.0.0.1, 10.0.0.2, …
inline rendezvous::RankTable gang(const std::vector<Pods>& roles, int attempt = 0) {
  std::vector<rendezvous::Node> nodes;
  for (const Pods& role : roles) {
    for (int replica = 0; replica < role.replicas; ++replica) {
      rendezvous::Node node;
      node.node_rank = static_cast<int>(nodes.size());
      node.role = role.role;
      node.kind = role.kind;
      node.replica_index = replica;
      node.processes = role.processes;
      node.address = "10.0.0." + std::to_string(nodes.size() + 1);
      nodes.push_back(std::move(node));
    }
  }
  return rendezvous::make_rank_table(attempt, static_cast<std::uint16_t>(29500 + attempt),
                                     std::move(nodes));
}

inline RankSetting setting_of(const std::string& framework, bool passthrough = false) {
  RankSetting setting;
  setting.framework = framework;
  setting.passthrough = passthrough;
  setting.job_uid = "uid-1";
  return setting;
}

/// What the framework's file adds to what every framework gets, for one process of the pod.
inline Environment added(const rendezvous::RankTable& table, int node, const RankSetting& setting,
                         int local_rank = 0, const Environment& base = {}) {
  const auto& own = table.nodes[static_cast<std::size_t>(node)];
  RankSetting custom = setting;
  custom.framework = "Custom";
  const auto common = compose_environment(base, {table, own, custom, local_rank, 0}).variables;
  Environment all = compose_environment(base, {table, own, setting, local_rank, 0}).variables;
  for (const auto& [name, value] : common) {
    const auto found = all.find(name);
    if (found != all.end() && found->second == value) all.erase(found);
  }
  return all;
}

}  // namespace paceline::frameworks
