// SPDX-License-Identifier: Apache-2.0
// NodeGuard: when pods on a silent node may be deleted by force. One silent node is a lost node.
// Many nodes that fall silent together are more likely a fault of the control plane or the network,
// and their pods still train. The rules are those of Kubernetes' node-lifecycle controller:
//
// - If every node is silent, none is lost.
//
// - In a zone where more than two nodes and at least 55 % are silent, but not all, none is lost.
//
// - In every other zone the silent nodes are lost one after the other, ten seconds apart.
//
// Values; pure. Needs no memory: the answer follows from the nodes alone, so it is the same for
// every job and after a restart of the operator.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "operator/observe/views.hpp"

namespace paceline::plan {

class NodeGuard {
 public:
  /// `after`: how long a node must have been silent.
  NodeGuard(const std::vector<std::shared_ptr<const observe::NodeView>>& nodes,
            std::chrono::nanoseconds after);

  /// When the silent node counts as lost; nullopt while the guard holds it.
  std::optional<WallTime> lost_at(const std::string& node) const;

 private:
  std::map<std::string, WallTime> lost_at_;
};

}  // namespace paceline::plan
