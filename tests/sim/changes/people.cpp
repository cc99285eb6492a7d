// SPDX-License-Identifier: Apache-2.0
// What people do to objects that are the operator's: they delete jobs in every way and create them
// again at once, take labels off pods, and change the quota.
#include <array>

#include "common/base/timestamp.hpp"
#include "tests/sim/world.hpp"

namespace paceline::sim {

using nlohmann::json;

void World::interfere() {
  const Rates& rates = chaos_.rates;
  if (!facts().jobs.empty() && chaos_.chance(rates.recreate)) recreate_some_job();
  if (!facts().pods.empty() && chaos_.chance(rates.strip)) strip_some_pod();
  if (has_quota_ && chaos_.chance(rates.limit))
    set_limit(static_cast<int>(chaos_.pick(static_cast<std::size_t>(quota_pods_) + 1)));
}

/// As by kubectl replace --force, and by kubectl delete with each --cascade.
void World::recreate_some_job() {
  const std::string name = some_job();
  if (foreground_.contains(name)) return;
  recreated_ = true;
  switch (chaos_.pick(3)) {
    case 0: {
      const json meta = {{"deletionTimestamp", format_time(clock_.wall())},
                         {"finalizers", json::array({"foregroundDeletion"})}};
      cluster_.poke(kube::kTrainingJobs, "default", name, json{{"metadata", meta}}.dump());
      foreground_.insert(name);
      return;
    }
    case 1:
      for (const auto& [pod_name, pod] : Facts(facts()).pods) {
        if (pod.owner == facts().jobs.at(name).uid)
          cluster_.poke(kube::kPods, "default", pod_name,
                        R"({"metadata":{"ownerReferences":null}})");
      }
      break;
    default: break;
  }
  cluster_.erase(kube::kTrainingJobs, "default", name);
  (void)plain_->create(kube::kTrainingJobs, "default", documents_.at(name));
}

/// A job that is deleted in the foreground goes when its pods have, and is then created again.
void World::end_foreground_deletions() {
  for (const std::string& name : std::set<std::string>(foreground_)) {
    const auto job = facts().jobs.find(name);
    const std::string uid = job == facts().jobs.end() ? "" : job->second.uid;
    bool any = false;
    for (const auto& [pod_name, pod] : Facts(facts()).pods) {
      if (uid.empty() || pod.owner != uid) continue;
      any = true;
      if (!pod.deleting) (void)plain_->remove(kube::kPods, "default", pod_name);
    }
    if (any) continue;
    foreground_.erase(name);
    cluster_.erase(kube::kTrainingJobs, "default", name);
    (void)plain_->create(kube::kTrainingJobs, "default", documents_.at(name));
  }
}

/// As people do who want a pod out of a Service, or an admission webhook that rewrites labels.
void World::strip_some_pod() {
  constexpr std::array kLabels{"paceline.dev/job", "paceline.dev/job-uid", "paceline.dev/node-rank",
                               "paceline.dev/role", "paceline.dev/incarnation"};
  const auto pod = std::next(facts().pods.begin(),
                             static_cast<std::ptrdiff_t>(chaos_.pick(facts().pods.size())));
  if (pod->second.owner.empty() || pod->second.placeholder) return;
  const json labels = {{kLabels[chaos_.pick(kLabels.size())], nullptr}};
  cluster_.poke(kube::kPods, "default", std::string(pod->first),
                json{{"metadata", {{"labels", labels}}}}.dump());
}

void World::set_limit(int pods) {
  const json hard = {{"hard", {{"pods", std::to_string(pods)}}}};
  cluster_.poke(kube::kResourceQuotas, "default", "team",
                json{{"spec", hard}, {"status", hard}}.dump());
}

/// Pods whose job was deleted without them: nobody but people may delete these.
void World::remove_orphans() {
  for (const auto& [name, pod] : Facts(facts()).pods) {
    if (pod.orphaned) cluster_.erase(kube::kPods, "default", name);
  }
}

}  // namespace paceline::sim
