// SPDX-License-Identifier: Apache-2.0
#include "operator/apply/warnings/warned_nodes.hpp"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/contract/warnings.hpp"
#include "operator/plan/placement/constraints.hpp"

namespace paceline::apply {
namespace {

/// A handler of spot notices cordons the node and taints it: one event.
constexpr std::chrono::minutes kOneEvent{1};

/// Kubernetes sets these for conditions of a node, and when it is cordoned.
bool is_of_kubernetes(const observe::Taint& taint) {
  return taint.key.starts_with("node.kubernetes.io/");
}

/// What pods tolerate. Those of a gang share the text of it.
class Tolerations {
 public:
  bool keep_off(const observe::Taint& taint, const std::string* text) {
    const auto [known, fresh] = read_.try_emplace(text);
    if (fresh && !text->empty()) {
      const nlohmann::json pod = {{"tolerations", nlohmann::json::parse(*text, nullptr, false)}};
      known->second = plan::read_constraints(pod);
    }
    return plan::keeps_off(taint, known->second);
  }

 private:
  std::map<const std::string*, plan::Constraints> read_;
};

}  // namespace

Warnings WarnedNodes::look(const std::vector<std::shared_ptr<const observe::PodView>>& pods,
                           const std::function<Node(const std::string& name)>& node,
                           SteadyTime now) {
  std::map<std::string, std::set<const std::string*>> there;  // what the pods there tolerate
  for (const auto& pod : pods) {
    if (pod->gang && !pod->node.empty() && !pod->deleting && !pod->terminal())
      there[pod->node].insert(&pod->gang->tolerations.get());
  }
  ++looks_;
  Tolerations tolerations;
  std::map<std::string, Mark> marks;
  for (const auto& [name, pods_there] : there) {
    const Node view = node(name);
    if (!view || !view->ready) continue;
    bool marked = view->unschedulable;
    bool tainted = false;
    for (const observe::Taint& taint : view->taints) {
      const bool against = std::ranges::any_of(
          pods_there, [&](const std::string* text) { return tolerations.keep_off(taint, text); });
      marked = marked || against;
      tainted = tainted || (against && !is_of_kubernetes(taint));
    }
    if (!marked) continue;
    const auto known = marks_.find(name);
    Mark mark = known == marks_.end() ? Mark{looks_, now, tainted} : known->second;
    if (tainted && !std::exchange(mark.tainted, true) && now - mark.since > kOneEvent) {
      mark.worse = true;
      mark.look = looks_;
    }
    marks.emplace(name, mark);
  }
  marks_ = std::move(marks);
  return newest();
}

Warnings WarnedNodes::newest() const {
  Warnings warnings;
  for (const auto& [name, mark] : marks_) warnings.nodes.push_back(name);
  if (warnings.nodes.size() > contract::kMostWarnedNodes) {
    std::ranges::stable_sort(warnings.nodes, std::greater(),
                             [this](const std::string& name) { return marks_.at(name).look; });
    warnings.nodes.resize(contract::kMostWarnedNodes);
    std::ranges::sort(warnings.nodes);
  }
  std::ranges::copy_if(warnings.nodes, std::back_inserter(warnings.tainted),
                       [this](const std::string& name) { return marks_.at(name).worse; });
  return warnings;
}

}  // namespace paceline::apply
