// SPDX-License-Identifier: Apache-2.0
// WarnedNodes: which nodes of a running job were marked since, so that its pods may soon be lost:
// cordoned, or tainted against new pods of the job (by an autoscaler, a handler of spot notices).
//
// A node that is not ready is no warning: its launcher may be gone already. Taints that a node has
// when its pod is first seen to run are none either: the pod was placed in spite of them, so
// something in the cluster has added a toleration. Values; one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "operator/observe/views.hpp"
#include "operator/plan/placement/needs.hpp"

namespace paceline::apply {

class WarnedNodes {
 public:
  using Node = std::shared_ptr<const observe::NodeView>;
  /// The names, sorted; at most contract::kMostWarnedNodes, those that were marked last. So nodes
  /// that stay cordoned for days hide no later warning.
  std::vector<std::string> look(const std::vector<std::shared_ptr<const observe::PodView>>& pods,
                                const std::vector<plan::Need>& needs,
                                const std::function<Node(const std::string& name)>& node);

 private:
  void keep_newest(std::vector<std::string>& warned);

  std::map<std::string, std::vector<observe::Taint>> first_taints_;  // by node of the job
  // by marked node: the number of the look that found it so first
  std::map<std::string, std::uint64_t> marked_since_;
  std::uint64_t looks_ = 0;
};

}  // namespace paceline::apply
