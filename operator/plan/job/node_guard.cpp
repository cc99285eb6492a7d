// SPDX-License-Identifier: Apache-2.0
#include "operator/plan/job/node_guard.hpp"

#include <algorithm>
#include <tuple>

namespace paceline::plan {
namespace {

constexpr std::size_t kFewNodes = 2;               // silent nodes that are no disruption of a zone
constexpr std::size_t kPercent = 55;               // of a zone's nodes
constexpr auto kApart = std::chrono::seconds(10);  // 0.1 nodes a second

struct Zone {
  std::size_t nodes = 0;
  std::vector<const observe::NodeView*> silent;

  bool disrupted() const {
    return silent.size() > kFewNodes && silent.size() < nodes &&
           silent.size() * 100 >= nodes * kPercent;
  }
};

}  // namespace

NodeGuard::NodeGuard(const std::vector<std::shared_ptr<const observe::NodeView>>& nodes,
                     std::chrono::nanoseconds after) {
  std::map<std::string, Zone> zones;
  bool any_ready = false;
  for (const auto& node : nodes) {
    const std::string* label = node->label("topology.kubernetes.io/zone");
    Zone& zone = zones[label != nullptr ? *label : ""];
    ++zone.nodes;
    any_ready = any_ready || node->ready;
    if (!node->ready) zone.silent.push_back(node.get());
  }
  if (!any_ready) return;
  for (auto& [name, zone] : zones) {
    if (zone.disrupted()) continue;
    std::ranges::sort(zone.silent, {}, [](const observe::NodeView* node) {
      return std::tie(node->ready_since, node->meta.name);
    });
    std::optional<WallTime> last;
    for (const observe::NodeView* node : zone.silent) {
      const WallTime due =
          std::chrono::time_point_cast<WallTime::duration>(node->ready_since + after);
      last = last ? std::max<WallTime>(due, *last + kApart) : due;
      lost_at_.emplace(node->meta.name, *last);
    }
  }
}

std::optional<WallTime> NodeGuard::lost_at(const std::string& node) const {
  const auto found = lost_at_.find(node);
  return found == lost_at_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace paceline::plan
