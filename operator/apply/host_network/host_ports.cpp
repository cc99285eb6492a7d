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
              "; write spec.scheduling.podsPerNode, or remove hostNetwork"};
}

}  // namespace

bool uses_host_network(const api::Spec& spec) {
  return std::ranges::any_of(spec.roles, api::uses_host_network);
}

std::optional<plan::Waiting> HostPorts::choose(
    const api::TrainingJob& job, std::vector<plan::CreatePod>& creates,
    const std::vector<std::shared_ptr<const observe::PodView>>& pods) {
  const std::vector<api::Replica> replicas = api::replicas_of(job.spec);
  std::map<std::string, std::set<int>> taken;  // by node
  for (const auto& pod : pods) {
    if (pod->terminal()) continue;
    for (const std::uint16_t port : pod->host_ports)
      taken[pod->place()].insert(contract::host_port_block(port));
  }
  const std::lock_guard lock(mutex_);
  const SteadyTime now = clock_.steady();
  std::erase_if(chosen_, [&](const auto& entry) { return now - entry.second.at > kUntilSeen; });
  for (const auto& [pod, chosen] : chosen_) taken[chosen.node].insert(chosen.block);
  std::map<std::string, Chosen> fresh;  // kept only if all have ports
  for (plan::CreatePod& create : creates) {
    const api::Replica& replica = replicas[static_cast<std::size_t>(create.node_rank)];
    if (!api::uses_host_network(job.spec.roles[static_cast<std::size_t>(replica.role)])) continue;
    const std::string pod =
        job.metadata.uid + "/" + render::pod_name(job, replica, create.incarnation);
    // A create that is tried again keeps its ports: the first try may have made the pod.
    const auto known = chosen_.find(pod);
    int block =
        known != chosen_.end() && known->second.node == create.node ? known->second.block : kNone;
    if (block == kNone) {
      std::set<int>& of_node = taken[create.node];
      block = first_free(of_node);
      if (block == kNone) return no_block_left(create.node);
      of_node.insert(block);
      fresh[pod] = {create.node, block, now};
    }
    create.port_base = contract::host_port_base(block);
  }
  for (auto& [pod, chosen] : fresh) chosen_.insert_or_assign(pod, std::move(chosen));
  return std::nullopt;
}

}  // namespace paceline::apply
