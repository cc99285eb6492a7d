// SPDX-License-Identifier: Apache-2.0
#include "operator/observe/topology_labels.hpp"

#include <algorithm>
#include <array>

namespace paceline::observe {
namespace {

/// The labels of each level, the first found counts.
constexpr std::array<std::array<std::string_view, 9>, api::kTopologyLevels.size()> kLabels{{
    {"paceline.dev/nvlink-domain", "nvidia.com/gpu.clique",
     "network.topology.nvidia.com/accelerator", "accelerator.topograph.run/domain",
     "topology.k8s.aws/ultraserver-id", "ds.coreweave.com/nvlink.domain"},
    {"paceline.dev/leaf", "network.topology.nvidia.com/leaf", "fabric.topograph.run/tier-0",
     "topology.k8s.aws/network-node-layer-3", "cloud.google.com/gce-topology-subblock",
     "oci.oraclecloud.com/rdma.local_block_id", "backend.coreweave.cloud/leafgroup",
     "cloud.provider.com/topology-rack"},
    {"paceline.dev/spine", "network.topology.nvidia.com/spine", "fabric.topograph.run/tier-1",
     "topology.k8s.aws/network-node-layer-2", "cloud.google.com/gce-topology-block",
     "oci.oraclecloud.com/rdma.network_block_id", "backend.coreweave.cloud/superpod",
     "cloud.provider.com/topology-block"},
    {"topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"},
}};

/// The level whose domains the label names in every cluster; kLabels.size(): none.
std::size_t known_level(std::string_view label) {
  const auto level = std::ranges::find_if(
      kLabels, [label](const auto& keys) { return std::ranges::find(keys, label) != keys.end(); });
  return static_cast<std::size_t>(level - kLabels.begin());
}

}  // namespace

std::string domain_by_labels(const Label& label, api::TopologyLevel level) {
  for (const std::string_view key : kLabels[static_cast<std::size_t>(level)]) {
    if (key.empty()) break;
    const std::string* value = label(key);
    if (value == nullptr || value->empty()) continue;
    std::string name = *value;
    // Labels cannot hold the '/' of a NodeFabric's "clusterUuid/cliqueId".
    if (level == api::TopologyLevel::kNvlink) {
      if (const std::size_t dot = name.rfind('.'); dot != std::string::npos) name[dot] = '/';
    }
    return name;
  }
  return "";
}

LevelLabels levels_of(const std::vector<std::string>& labels) {
  LevelLabels named;
  auto next = static_cast<std::size_t>(api::TopologyLevel::kLeaf);
  for (std::size_t i = labels.size(); i-- > 0;) {
    if (labels[i] == "kubernetes.io/hostname") continue;
    if (const std::size_t own = known_level(labels[i]); own < kLabels.size()) {
      next = std::max(next, own + 1);
      continue;
    }
    std::size_t end = kLabels.size();
    for (std::size_t wider = 0; wider < i; ++wider) end = std::min(end, known_level(labels[wider]));
    if (next < end) named[next++] = labels[i];
  }
  return named;
}

std::string label_of_level(const std::vector<std::string>& labels, api::TopologyLevel level) {
  const auto wanted = static_cast<std::size_t>(level);
  for (const std::string& label : labels) {
    if (known_level(label) == wanted) return label;
  }
  return levels_of(labels)[wanted];
}

}  // namespace paceline::observe
