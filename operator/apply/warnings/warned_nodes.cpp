// SPDX-License-Identifier: Apache-2.0
#include "operator/apply/warnings/warned_nodes.hpp"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "common/contract/warnings.hpp"

namespace paceline::apply {

std::vector<std::string> WarnedNodes::look(
    const std::vector<std::shared_ptr<const observe::PodView>>& pods,
    const std::vector<plan::Need>& needs,
    const std::function<Node(const std::string& name)>& node) {
  std::set<std::string> names;
  for (const auto& pod : pods) {
    if (pod->gang && !pod->node.empty() && !pod->deleting && !pod->terminal())
      names.insert(pod->node);
  }
  std::erase_if(first_taints_, [&](const auto& known) { return !names.contains(known.first); });
  std::vector<std::string> warned;
  for (const std::string& name : names) {
    const Node view = node(name);
    if (!view) continue;
    const auto& first = first_taints_.try_emplace(name, view->taints).first->second;
    const bool is_new = std::ranges::any_of(view->taints, [&](const observe::Taint& taint) {
      return std::ranges::find(first, taint) == first.end() &&
             std::ranges::any_of(needs, [&](const plan::Need& need) {
               return plan::keeps_off(taint, need.constraints);
             });
    });
    if (view->ready && (view->unschedulable || is_new)) warned.push_back(name);
  }
  keep_newest(warned);
  return warned;
}

void WarnedNodes::keep_newest(std::vector<std::string>& warned) {
  ++looks_;
  std::map<std::string, std::uint64_t> since;
  for (const std::string& name : warned) {
    const auto known = marked_since_.find(name);
    since.emplace(name, known == marked_since_.end() ? looks_ : known->second);
  }
  marked_since_ = std::move(since);
  if (warned.size() <= contract::kMostWarnedNodes) return;
  std::ranges::stable_sort(warned, std::greater(),
                           [this](const std::string& name) { return marked_since_.at(name); });
  warned.resize(contract::kMostWarnedNodes);
  std::ranges::sort(warned);
}

}  // namespace paceline::apply
