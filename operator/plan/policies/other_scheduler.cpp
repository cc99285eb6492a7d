// SPDX-License-Identifier: Apache-2.0
// A job whose pods another scheduler binds (spec.scheduling.backend). Its pods are created at once,
// in a PodGroup, and name no node. While none of them is bound, the job waits in that scheduler's
// queue, for as long as it takes; a gang of which only a part is bound for gangTimeout is removed.
#include <algorithm>

#include "operator/api/backend.hpp"
#include "operator/plan/policies/policies.hpp"
#include "operator/render/pod_group.hpp"

namespace paceline::plan {
namespace {

std::string why_waiting(const Planner& planner, const std::vector<ReplicaState>& replicas) {
  std::string text = "waits for " + std::string(to_string(api::backend_of(planner.spec)));
  for (const ReplicaState& state : replicas) {
    if (state.pod == nullptr || !state.pod->gang || state.pod->gang->message.empty()) continue;
    return text + ": " + state.pod->gang->message;
  }
  return text + "; what it says of the gang: kubectl describe " +
         std::string(render::gang_scheduler(api::backend_of(planner.spec))->resource()) + " " +
         planner.out.status.pod_group;
}

}  // namespace

bool leave_to_other(Planner& planner) {
  api::JobStatus& status = planner.status();
  if (!status.pod_group.empty()) {
    planner.out.queued = false;  // until the last placement's is gone
    return true;
  }
  if (api::backend_of(planner.spec) == api::Backend::kNative) return false;
  status.pod_group = render::pod_group_name(planner.in.job.job);
  std::vector<int> sizes;
  for (const api::Role& role : planner.spec.roles) sizes.push_back(role.replicas);
  take_place(planner, sizes,
             std::vector<std::string>(static_cast<std::size_t>(api::replica_count(planner.spec))));
  status.start_time.reset();  // note_nodes sets it
  if (starts_open(planner))
    planner.set(status::kPlaced, false, "WaitingForScheduler", why_waiting(planner, {}));
  return true;
}

bool waits_for_other(Planner& planner, const std::vector<ReplicaState>& replicas) {
  if (!planner.placed_by_other()) return false;
  const bool any_bound = std::ranges::any_of(replicas, [](const ReplicaState& state) {
    return state.pod != nullptr && !state.pod->node.empty();
  });
  if (any_bound) {
    if (!planner.status().is_true(status::kPlaced))
      planner.set(status::kPlaced, true, "Starting", "a part of the gang is bound");
    return false;
  }
  planner.set(status::kPlaced, false, "WaitingForScheduler", why_waiting(planner, replicas));
  return true;
}

void note_nodes(Planner& planner, const std::vector<ReplicaState>& replicas) {
  if (!planner.placed_by_other()) return;
  std::vector<std::string> nodes;
  for (const ReplicaState& state : replicas) nodes.push_back(state.node);
  planner.status().set_nodes(nodes);
  if (!planner.status().start_time)
    planner.status().start_time = std::chrono::floor<std::chrono::seconds>(planner.now());
}

void tend_pod_group(Planner& planner) {
  api::JobStatus& status = planner.status();
  if (status.pod_group.empty()) return;
  if (!planner.out.creates.empty())
    planner.out.avoid_nodes = excluded_nodes(status, planner.now());
  const bool needed = status.placed() && !status.finished();
  if (needed || planner.any_live_pod() || !planner.out.creates.empty()) return;
  if (planner.in.memory.pod_group_gone) {
    status.pod_group.clear();
  } else {
    planner.out.drop_pod_group = true;
  }
}

}  // namespace paceline::plan
