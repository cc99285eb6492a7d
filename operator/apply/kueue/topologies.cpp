// SPDX-License-Identifier: Apache-2.0
#include "operator/apply/kueue/topologies.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "operator/observe/topology_labels.hpp"

namespace paceline::apply {
namespace {

/// A ResourceFlavor, and the labels by which its Topology names levels.
struct Pool {
  std::shared_ptr<const observe::FlavorView> flavor;
  observe::LevelLabels labels;
};

std::vector<Pool> pools_of(const Stores& stores) {
  std::vector<Pool> pools;
  for (const auto& flavor : stores.flavors.list()) {
    const auto topology =
        flavor->topology.empty() ? nullptr : stores.topologies.get(flavor->topology);
    if (!topology) continue;
    observe::LevelLabels labels = observe::levels_of(topology->levels);
    if (labels != observe::LevelLabels{}) pools.push_back({flavor, std::move(labels)});
  }
  std::ranges::sort(pools, {},
                    [](const Pool& pool) -> const std::string& { return pool.flavor->meta.name; });
  return pools;
}

bool has_node(const Pool& pool, const observe::NodeView& node) {
  return std::ranges::all_of(pool.flavor->node_labels, [&node](const auto& label) {
    const std::string* value = node.label(label.first);
    return value != nullptr && *value == label.second;
  });
}

}  // namespace

std::vector<plan::Domains> domains_by_topologies(
    const Stores& stores, const std::vector<std::shared_ptr<const observe::NodeView>>& nodes) {
  const std::vector<Pool> pools = pools_of(stores);
  std::vector<plan::Domains> all(pools.empty() ? 0 : nodes.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const observe::NodeView& node = *nodes[i];
    const auto pool =
        std::ranges::find_if(pools, [&node](const Pool& one) { return has_node(one, node); });
    for (std::size_t level = 0; level < all[i].size(); ++level) {
      all[i][level] = node.domains[level].get();
      if (!all[i][level].empty() || pool == pools.end() || pool->labels[level].empty()) continue;
      if (const std::string* value = node.label(pool->labels[level])) all[i][level] = *value;
    }
  }
  return all;
}

}  // namespace paceline::apply
