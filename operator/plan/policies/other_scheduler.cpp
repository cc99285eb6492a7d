// SPDX-License-Identifier: Apache-2.0
// A job whose pods another scheduler binds (spec.scheduling.backend). Its pods are created as soon
// as the namespace's quota admits them, in a PodGroup, and name no node. While none of them is
// bound, the job waits in that scheduler's queue, for as long as it takes; a gang of which only a
// part is bound for gangTimeout is removed.
#include <algorithm>

#include "operator/api/schedulers/backend.hpp"
#include "operator/plan/policies/policies.hpp"
#include "operator/render/pod_group.hpp"

namespace paceline::plan {
namespace {

constexpr auto kLook = std::chrono::minutes(1);
constexpr const char* kNotDeleted = "PodGroupNotDeleted";

std::string why_waiting(const Planner& planner, const std::vector<ReplicaState>& replicas) {
  std::string text = "waits for " + std::string(api::chooser_of(api::backend_of(planner.spec)));
  for (const ReplicaState& state : replicas) {
    if (state.pod == nullptr || !state.pod->gang || state.pod->gang->message.empty()) continue;
    return text + ": " + state.pod->gang->message;
  }
  const render::GangScheduler* scheduler = render::gang_scheduler(api::backend_of(planner.spec));
  if (scheduler == nullptr) return text;  // of an edited spec
  return text + "; what it says of the gang: kubectl describe " + scheduler->resource() + " " +
         planner.out.status.pod_group;
}

}  // namespace

bool waits_for_last_group(Planner& planner) {
  if (planner.out.status.pod_group.empty()) return false;
  planner.out.queued = false;
  return true;
}

void leave_to_other(Planner& planner) {
  if (api::backend_of(planner.spec) == api::Backend::kNative) return;
  planner.status().pod_group = render::pod_group_name(
      planner.in.job.job, planner.status().roles.front().incarnations.front());
  planner.status().start_time.reset();  // note_nodes sets it
  if (starts_open(planner))
    planner.set(status::kPlaced, false, "WaitingForScheduler", why_waiting(planner, {}));
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
  planner.status().start_time.reset();  // the wait for a whole new gang counts for nothing, too
  planner.out.keep_pod_group = true;
  planner.wake_after(kLook);
  return true;
}

bool ask_again(Planner& planner, const std::vector<ReplicaState>& replicas) {
  bool removed = false;
  for (const ReplicaState& state : replicas) {
    if (state.pod == nullptr || !state.pod->node.empty() || state.pod->deleting ||
        !is_live(*state.pod))
      continue;
    for (const api::ExcludedNode& node : planner.status().excluded_nodes) {
      if (state.pod->created < node.since || state.pod->created >= node.until) continue;
      if (node.until > planner.now()) {
        planner.wake_after(node.until - planner.now());
        continue;
      }
      planner.remove(*state.pod);
      removed = true;
      break;
    }
  }
  return removed;
}

void note_nodes(Planner& planner, const std::vector<ReplicaState>& replicas) {
  const auto unbound = [](const ReplicaState& state) {
    return state.pod == nullptr || state.pod->node.empty();
  };
  if (!planner.placed_by_other() || std::ranges::any_of(replicas, unbound)) return;
  std::vector<std::string> nodes;
  for (const ReplicaState& state : replicas) nodes.push_back(state.node);
  planner.status().set_nodes(nodes);
  if (!planner.status().start_time)
    planner.status().start_time = std::chrono::floor<std::chrono::seconds>(planner.now());
}

void tend_pod_group(Planner& planner) {
  api::JobStatus& status = planner.status();
  if (status.pod_group.empty()) return;
  if (!planner.out.creates.empty()) planner.out.avoid_nodes = excluded_nodes(status, planner.now());
  const bool needed = status.placed() && !status.finished();
  if (needed || planner.any_live_pod() || !planner.out.creates.empty()) return;
  if (planner.in.memory.pod_group_gone) {
    status.pod_group.clear();
    if (!status.is(status::kPlaced, kNotDeleted)) return;
    planner.set(status::kPlaced, false, status.finished() ? "Finished" : "Queued");
    return;
  }
  planner.out.drop_pod_group = true;
  if (const std::string& why = planner.in.memory.pod_group_kept; !why.empty())
    planner.set(status::kPlaced, false, kNotDeleted, why);
}

}  // namespace paceline::plan
