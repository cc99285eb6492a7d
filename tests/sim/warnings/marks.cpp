// SPDX-License-Identifier: Apache-2.0
// Laws: what may follow when nodes of a running job are cordoned or tainted. Its ranks save, and
// that is all.
#include <algorithm>

#include "tests/sim/laws.hpp"

namespace paceline::sim {
namespace {

constexpr std::chrono::seconds kBetweenLooks{2};  // of the operator, at least

bool as_it_wants(const JobFacts& job) { return job.fewest == 0 || job.size == job.wanted; }

}  // namespace

/// From now on, whatever happens to this gang has a cause that the laws see.
void Laws::note_untouched(const std::string& uid) {
  // Of two leaders, the older one acts on what was true long ago. So does Kueue.
  if (!expect_room_ || untouched_.contains(uid)) return;
  const auto found = std::ranges::find(
      facts_.jobs, uid, [](const auto& job) -> const auto& { return job.second.uid; });
  if (found == facts_.jobs.end()) return;
  const JobFacts& job = found->second;
  if (!job.running || job.restarting || job.replacing || job.edited || job.deleting ||
      job.finished() || job.in_kueue || !as_it_wants(job))
    return;
  int there = 0;
  for (const auto& [name, pod] : facts_.pods) {
    if (pod.owner != uid || pod.placeholder || pod.stray || pod.ended()) continue;
    const auto rank = static_cast<std::size_t>(pod.rank);
    const auto node = facts_.nodes.find(pod.node);
    if (pod.deleting || pod.phase != "Running" || rank >= job.incarnations.size() ||
        job.incarnations[rank] != pod.incarnation || node == facts_.nodes.end() ||
        node->second.was_silent)
      return;
    ++there;
  }
  if (there == job.replicas) untouched_.insert(uid);
}

void Laws::follow_untouched(const PodFacts& pod, bool gone) {
  asked_.erase(pod.owner);
  if (pod.stray) return;
  if (gone || pod.deleting || pod.ended() || pod.phase != "Running") untouched_.erase(pod.owner);
}

void Laws::check_untouched(const JobFacts& before, const JobFacts& after) {
  asked_.erase(after.uid);
  if (!untouched_.contains(after.uid)) return;
  if (before.edited || after.edited || after.deleting || after.finished() || !as_it_wants(after)) {
    untouched_.erase(after.uid);
    return;
  }
  const int counted = attempts_.contains(after.uid) ? attempts_.at(after.uid) : 0;
  if (after.attempt > std::max(before.attempt, counted) || after.disruptions > before.disruptions ||
      after.nodes != before.nodes || after.incarnations != before.incarnations)
    report(Law::kMarksCostNothing,
           after.name + " trains, and has another attempt, disruption or place: " + after.message);
}

void Laws::follow_marks(const NodeFacts& node, const NodeFacts* before) {
  if (before == nullptr || before->closed() == node.closed()) return;
  asked_.clear();
  if (!node.closed()) return;
  ++closings_[node.name];
  for (auto& [uid, nodes] : told_) nodes.erase(node.name);
}

void Laws::on_warning(const std::string& uid, const apply::Warnings& warned, SteadyTime now) {
  const std::vector<std::string>& nodes = warned.nodes;
  for (const std::string& name : nodes) {
    const auto node = facts_.nodes.find(name);
    if (node == facts_.nodes.end() || !node->second.was_closed)
      report(Law::kWarnsSparingly, "a job is warned of node " + name + ", which has no mark");
  }
  const auto last = asked_.find(uid);
  if (last != asked_.end() && expect_knowledge_ && expect_room_ && last->second.warned == warned &&
      now - last->second.at < kBetweenLooks)
    report(Law::kWarnsSparingly, "a job is warned twice of node " + nodes.front() +
                                     " and the same others within two seconds");
  asked_.insert_or_assign(uid, Asked{now, warned});
  told_[uid] = {nodes.begin(), nodes.end()};
}

void Laws::on_save(const std::string& uid, int host, const std::vector<std::string>& nodes) {
  for (const std::string& node : nodes) {
    const int closings = closings_[node];
    int& saved = saved_for_[{uid, host, node}];
    if (saved == closings)
      report(Law::kSavesOnce, "a gang saves again for one mark of node " + node);
    saved = closings;
  }
}

}  // namespace paceline::sim
