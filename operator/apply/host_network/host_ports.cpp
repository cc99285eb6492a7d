// SPDX-License-Identifier: Apache-2.0
#include "operator/apply/host_network/host_ports.hpp"

#include <algorithm>
#include <set>

#include "common/contract/host_ports.hpp"
#include "operator/api/template/containers.hpp"
#include "operator/render/names.hpp"

namespace paceline::apply {
namespace {

constexpr std::chrono::minutes kUntilSeen{1};
constexpr int kNone = -1;

std::string key_of(const std::string& job_uid, const std::string& replica) {
  return job_uid + "/" + replica;
}

/// kNone: all are taken.
int first_free(const std::set<int>& taken) {
  for (int block = 0; block < contract::kMostHostPods; ++block) {
    if (!taken.contains(block)) return block;
  }
  return kNone;
}

plan::Waiting no_block_left(const std::string& node) {
  return {"HostPortsTaken",
          "node " + node + " has no ports left for one more pod in its network: pods there have " +
              "some of each " + std::to_string(contract::kHostPortsOfPod) + " ports from " +
              std::to_string(contract::kFirstHostPort) + " to " +
              std::to_string(contract::kEndOfHostPorts - 1) +
              "; the job is placed again, on nodes that have ports left"};
}

}  // namespace

bool uses_host_network(const api::Spec& spec) {
  return std::ranges::any_of(spec.roles, api::uses_host_network);
}

std::optional<plan::Waiting> HostPorts::choose(const api::TrainingJob& job,
                                               std::vector<plan::CreatePod>& creates) {
  const std::vector<api::Replica> replicas = api::replicas_of(job.spec);
  // Held while pods are listed, so that none is missed because it is seen meanwhile.
  const std::lock_guard lock(mutex_);
  std::map<std::string, std::set<int>> taken;  // by node
  for (const auto& pod : pods_.list()) {
    if (pod->over()) continue;
    for (const std::uint16_t port : pod->host_ports)
      taken[pod->place()].insert(contract::host_port_block(port));
  }
  const SteadyTime now = clock_.steady();
  std::map<std::string, plan::CreatePod*> mine;
  for (plan::CreatePod& create : creates) {
    const api::Replica& replica = replicas[static_cast<std::size_t>(create.node_rank)];
    if (api::uses_host_network(job.spec.roles[static_cast<std::size_t>(replica.role)]))
      mine[key_of(job.metadata.uid, render::host_name(job, replica))] = &create;
  }
  std::erase_if(chosen_, [&](const auto& entry) { return now - entry.second.at > kUntilSeen; });
  for (const auto& [replica, chosen] : chosen_) {
    std::set<int>& of_node = taken[chosen.node];
    const auto known = mine.find(replica);
    if (known == mine.end()) {
      of_node.insert(chosen.block);
    } else if (known->second->node == chosen.node && of_node.insert(chosen.block).second) {
      // A create that is tried again keeps its ports: the first try may have made the pod.
      known->second->port_base = contract::host_port_base(chosen.block);
    }
  }
  for (const auto& [replica, create] : mine) {
    std::set<int>& of_node = taken[create->node];
    if (create->port_base == 0) {
      const int block = first_free(of_node);
      if (block == kNone) return no_block_left(create->node);
      of_node.insert(block);
      create->port_base = contract::host_port_base(block);
    }
  }
  for (const auto& [replica, create] : mine)
    chosen_[replica] = {create->node, create->incarnation,
                        contract::host_port_block(create->port_base), now};
  return std::nullopt;
}

void HostPorts::seen(const observe::PodView& pod) {
  if (!pod.gang || pod.host_ports.empty()) return;
  // Its name is that of the replica with the incarnation.
  const std::string replica = pod.meta.name.substr(0, pod.meta.name.rfind('-'));
  const std::lock_guard lock(mutex_);
  const auto chosen = chosen_.find(key_of(pod.gang->job_uid, replica));
  if (chosen != chosen_.end() && chosen->second.incarnation == pod.gang->incarnation)
    chosen_.erase(chosen);
}

}  // namespace paceline::apply
