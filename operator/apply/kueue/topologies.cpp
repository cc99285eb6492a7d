// SPDX-License-Identifier: Apache-2.0
#include "operator/apply/kueue/topologies.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "operator/observe/topology_labels.hpp"
#include "operator/render/workload.hpp"

namespace paceline::apply {
namespace {

/// A ResourceFlavor, and the labels by which its Topology names levels.
struct Pool {
  std::shared_ptr<const observe::FlavorView> flavor;
  observe::LevelLabels labels;
};

/// Null if it has none that exists.
std::shared_ptr<const observe::TopologyView> topology_of(const Stores& stores,
                                                         const observe::FlavorView& flavor) {
  return flavor.topology.empty() ? nullptr : stores.topologies.get(flavor.topology);
}

std::vector<Pool> pools_of(const Stores& stores) {
  std::vector<Pool> pools;
  for (const auto& flavor : stores.flavors.list()) {
    const auto topology = topology_of(stores, *flavor);
    if (!topology) continue;
    observe::LevelLabels labels = observe::levels_of(topology->levels);
    if (labels != observe::LevelLabels{}) pools.push_back({flavor, std::move(labels)});
  }
  std::ranges::sort(pools, {},
                    [](const Pool& pool) -> const std::string& { return pool.flavor->meta.name; });
  return pools;
}

bool has_node(const observe::FlavorView& flavor, const observe::NodeView& node) {
  return std::ranges::all_of(flavor.node_labels, [&node](const auto& label) {
    const std::string* value = node.label(label.first);
    return value != nullptr && *value == label.second;
  });
}

/// The node's domain of the level goes by another label than this one.
bool goes_by_another(const observe::NodeView& node, const std::string& label,
                     api::TopologyLevel level) {
  const std::string& domain = node.domains[static_cast<std::size_t>(level)].get();
  const auto only = [&](std::string_view key) { return key == label ? node.label(key) : nullptr; };
  return !domain.empty() && domain != observe::domain_by_labels(only, level);
}

/// The label by which Kueue and Paceline mean the same domains on all nodes of the flavors; empty:
/// there is none.
std::string common_label(const Stores& stores, const std::vector<std::string>& flavors,
                         api::TopologyLevel level) {
  constexpr std::size_t kLongest = 63;  // that a Workload may name
  std::vector<std::shared_ptr<const observe::FlavorView>> known;
  std::string common;
  for (const std::string& name : flavors) {
    const auto flavor = stores.flavors.get(name);
    const auto topology = flavor ? topology_of(stores, *flavor) : nullptr;
    const std::string label =
        topology ? observe::label_of_level(topology->levels, level) : std::string();
    if (label.empty() || label.size() > kLongest || (!common.empty() && label != common)) return "";
    common = label;
    known.push_back(flavor);
  }
  for (const auto& node : stores.nodes.list()) {
    if (goes_by_another(*node, common, level) &&
        std::ranges::any_of(known, [&](const auto& flavor) { return has_node(*flavor, *node); }))
      return "";
  }
  return common;
}

}  // namespace

std::optional<api::LevelAsk> level_to_ask(const Stores& stores, const api::TrainingJob& job) {
  const api::Spec& spec = job.spec;
  const bool follows = std::ranges::any_of(
      spec.roles, [&spec](const api::Role& role) { return render::follows_level(spec, role); });
  const bool has_level = spec.required_topology || spec.preferred_topology;
  // Another scheduler reads no level.
  if (!has_level || !follows || api::backend_of(spec) != api::Backend::kNative)
    return api::LevelAsk{};
  const auto queue = stores.local_queues.get(job.metadata.name_space, api::named_queue(job));
  if (!queue || queue->flavors.empty()) return std::nullopt;
  api::LevelAsk ask;
  if (const auto& level = spec.required_topology)
    ask = {common_label(stores, queue->flavors, *level), true};
  if (const auto& level = spec.preferred_topology; level && ask.label.empty())
    ask = {common_label(stores, queue->flavors, *level), false};
  return ask.label.empty() ? api::LevelAsk{} : ask;
}

std::vector<plan::Domains> domains_by_topologies(
    const Stores& stores, const std::vector<std::shared_ptr<const observe::NodeView>>& nodes) {
  const std::vector<Pool> pools = pools_of(stores);
  std::vector<plan::Domains> all(pools.empty() ? 0 : nodes.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const observe::NodeView& node = *nodes[i];
    const auto pool = std::ranges::find_if(
        pools, [&node](const Pool& one) { return has_node(*one.flavor, node); });
    for (std::size_t level = 0; level < all[i].size(); ++level) {
      all[i][level] = node.domains[level].get();
      if (!all[i][level].empty() || pool == pools.end() || pool->labels[level].empty()) continue;
      if (const std::string* value = node.label(pool->labels[level])) all[i][level] = *value;
    }
  }
  return all;
}

}  // namespace paceline::apply
