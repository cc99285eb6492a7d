// SPDX-License-Identifier: Apache-2.0
// WarnedNodes: which nodes of a running job are marked, so that its pods may soon be lost:
// cordoned, or tainted against these pods (by an autoscaler, a handler of spot notices).
//
// A node that is not ready is no warning: its launcher may be gone already. A taint that a pod on
// the node tolerates is none either. One that it does not tolerate came after the pod was bound, so
// nothing need be remembered of earlier looks. Values; one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.hpp"
#include "operator/observe/views.hpp"

namespace paceline::apply {

/// Names of nodes, sorted.
struct Warnings {
  std::vector<std::string> nodes;
  /// Of these: cordoned for a while, and then tainted, so that the pods are now about to end.
  std::vector<std::string> tainted;
  bool operator==(const Warnings&) const = default;
};

class WarnedNodes {
 public:
  using Node = std::shared_ptr<const observe::NodeView>;
  /// At most contract::kMostWarnedNodes, those that were marked last. So nodes that stay cordoned
  /// for days hide no later warning.
  Warnings look(const std::vector<std::shared_ptr<const observe::PodView>>& pods,
                const std::function<Node(const std::string& name)>& node, SteadyTime now);

 private:
  struct Mark {
    std::uint64_t look = 0;  // the number of the look that found it first, or found it worse
    SteadyTime since{};
    bool tainted = false;  // by something else than Kubernetes itself
    bool worse = false;    // it was tainted long after the node was cordoned
  };
  Warnings newest() const;

  std::map<std::string, Mark> marks_;  // by marked node
  std::uint64_t looks_ = 0;
};

}  // namespace paceline::apply
