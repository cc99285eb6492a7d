// SPDX-License-Identifier: Apache-2.0
#include "operator/service/debug_job.hpp"

#include <algorithm>
#include <utility>

#include "common/base/timestamp.hpp"
#include "common/contract/labels.hpp"

namespace paceline {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kNamedJobs = 20;
constexpr std::size_t kShownPods = 20;

ordered_json wait_for(std::string_view what, std::string_view reason, std::string_view message) {
  return {{"what", what}, {"reason", reason}, {"message", message}};
}

/// The scheduler's answer names what is missing by its reason.
std::string_view what_of(std::string_view reason) {
  if (reason.starts_with("Quota")) return "quota";
  if (reason.starts_with("PriorityClass")) return "priorityClass";
  if (reason == "NodesExcluded") return "excludedNodes";
  return reason == plan::kInternalError ? "operator" : "room";
}

void add_kueue(ordered_json& list, const plan::KueueSeen& kueue) {
  if (kueue.queue.empty() || (kueue.workload && kueue.workload->grants())) return;
  ordered_json item =
      wait_for("kueue", kueue.queue_exists ? "WaitingForKueue" : "LocalQueueNotFound",
               kueue.workload ? kueue.workload->message : "");
  item["localQueue"] = kueue.queue;
  item["workload"] = kueue.workload ? ordered_json(kueue.workload->meta.name) : ordered_json();
  list.push_back(std::move(item));
}

void add_nodes(ordered_json& list, const plan::Memory& memory) {
  if (!memory.grow) return;
  ordered_json item = wait_for("nodes", "WaitingForNodes", *memory.grow);
  if (const auto& request = memory.request)
    item["request"] = {{"kind", api::to_string(request->kind)},
                       {"since", format_time(request->created)},
                       {"answer", request->answer},
                       {"refused", request->refused}};
  if (!memory.no_placeholders.empty()) item["refusal"] = memory.no_placeholders;
  list.push_back(std::move(item));
}

ordered_json waits_for(const apply::JobFacts& facts, WallTime now) {
  ordered_json list = ordered_json::array();
  const observe::JobView& job = *facts.job;
  const plan::Memory& memory = facts.memory;
  if (job.status.finished()) return list;
  if (job.of_other_manager()) {
    list.push_back(
        wait_for("manager", "ManagedBy", "spec.managedBy names " + job.job.spec.managed_by));
    return list;
  }
  if (!job.errors.empty()) return list;
  if (!memory.no_replacement_node.empty())
    list.push_back(wait_for("replacementNode", "Replacing", memory.no_replacement_node));
  if (const auto& elastic = job.status.elastic; elastic && !elastic->message.empty()) {
    list.push_back(wait_for("replicas", "RunsSmaller", elastic->message));
  }
  if (memory.refusal)
    list.push_back(wait_for("apiServer", memory.refusal->reason, memory.refusal->message));
  if (job.status.is("Placed", "WaitingForScheduler"))
    list.push_back(
        wait_for("otherScheduler", "WaitingForScheduler", job.status.find("Placed")->message));
  if (job.status.placed()) return list;
  if (memory.retry_at > now)
    list.push_back(
        wait_for("backOff", job.status.reason,
                 "no try before " + format_time(memory.retry_at) + "; " + job.status.message));
  if (memory.bind_refusal.until > now)
    list.push_back(wait_for("kubeScheduler", "SchedulerRefuses",
                            memory.bind_refusal.reason + "; no placement is tried before " +
                                format_time(memory.bind_refusal.until)));
  add_kueue(list, facts.kueue);
  if (memory.waiting)
    list.push_back(
        wait_for(what_of(memory.waiting->reason), memory.waiting->reason, memory.waiting->message));
  add_nodes(list, memory);
  return list;
}

ordered_json queue_of(const apply::JobFacts& facts) {
  ordered_json queue = {{"name", api::queue_of(facts.job->job)}, {"waits", facts.queued}};
  if (facts.passed_at) queue["lastPass"] = format_time(*facts.passed_at);
  if (!facts.in_pass) return queue;
  queue["position"] = facts.before.size() + 1;
  queue["of"] = facts.in_queue;
  const auto named = std::min(facts.before.size(), kNamedJobs);
  queue["before"] =
      std::vector(facts.before.begin(), facts.before.begin() + static_cast<std::ptrdiff_t>(named));
  return queue;
}

ordered_json excluded_nodes(const api::JobStatus& status, WallTime now) {
  ordered_json nodes = ordered_json::array();
  for (const api::ExcludedNode& node : status.excluded_nodes) {
    if (node.until > now)
      nodes.push_back({{"node", node.name},
                       {"message", node.message},
                       {"failures", node.count},
                       {"until", format_time(node.until)}});
  }
  return nodes;
}

/// Pods whose trainer does not run, and why.
ordered_json idle_pods(const apply::JobFacts& facts) {
  ordered_json list = ordered_json::array();
  for (const auto& pod : facts.pods) {
    if (!pod->gang || pod->gang->trainer == observe::TrainerState::kRunning) continue;
    if (list.size() == kShownPods) break;
    list.push_back({{"name", pod->meta.name},
                    {"node", pod->place()},
                    {"gated", pod->gang->gated || !pod->gang->other_gates.empty()},
                    {"deleting", pod->deleting},
                    {"reason", pod->gang->reason},
                    {"message", pod->gang->message}});
  }
  return list;
}

http::Response answer(int status, const ordered_json& body) {
  http::Response response;
  response.status = status;
  response.headers = {{"Content-Type", "application/json"}};
  // Messages come from users' containers too: bytes that are not UTF-8 are replaced.
  response.body = body.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
  return response;
}

}  // namespace

ordered_json job_page(const apply::JobFacts& facts, std::optional<WallTime> next, WallTime now) {
  const observe::JobView& job = *facts.job;
  const api::JobStatus& status = job.status;
  const auto& decision = facts.decision;
  const bool untold = status.phase.empty() && decision;  // a new job has no status for a second
  const api::FailurePolicy& policy = job.job.spec.failure_policy;
  ordered_json page = {{"namespace", job.meta.ns},
                       {"name", job.meta.name},
                       {"uid", job.meta.uid},
                       {"phase", untold ? decision->phase : status.phase},
                       {"reason", untold ? decision->reason : status.reason},
                       {"message", untold ? decision->message : status.message},
                       {"waitsFor", waits_for(facts, now)},
                       {"queue", queue_of(facts)},
                       {"excludedNodes", excluded_nodes(status, now)},
                       {"podsNotRunning", idle_pods(facts)},
                       {"attempt", status.attempt},
                       {"restarts", {{"used", status.restarts}, {"allowed", policy.max_restarts}}},
                       {"disruptions", {{"used", status.disruptions}, {"allowed", nullptr}}}};
  if (policy.max_disruptions) page["disruptions"]["allowed"] = *policy.max_disruptions;
  if (!facts.memory.preempted_by.empty()) page["preemptedBy"] = facts.memory.preempted_by;
  if (decision)
    page["lastPlan"] = {{"at", format_time(decision->at)},
                        {"phase", decision->phase},
                        {"reason", decision->reason},
                        {"message", decision->message},
                        {"actions", decision->actions}};
  if (facts.failure)
    page["lastError"] = {{"at", format_time(facts.failure->at)},
                         {"message", facts.failure->message}};
  page["nextLook"] = next ? ordered_json(format_time(*next)) : ordered_json("after the next event");
  return page;
}

http::Response debug_job(std::string_view target, const apply::Controller& controller,
                         const kube::WorkQueue& queue, const Clock& clock,
                         const Leadership& leadership) {
  const std::string key(target.substr(kDebugJobs.size(), target.find('?') - kDebugJobs.size()));
  const ordered_json about = {{"leading", leadership.leading}, {"leader", leadership.leader}};
  const auto refuse = [&](int status, const std::string& error) {
    return answer(status, {{"error", error}, {"operator", about}});
  };
  if (std::ranges::count(key, '/') != 1)
    return refuse(404, "the path is /debug/jobs/NAMESPACE/NAME, not " + std::string(target));
  if (!leadership.leading)
    return refuse(503, "this operator does not lead, so it knows no jobs; ask " +
                           (leadership.leader.empty() ? "the leader" : leadership.leader));
  const auto facts = controller.facts(key);
  if (!facts)
    return refuse(404, "there is no TrainingJob " + key +
                           "; `kubectl get trainingjobs -A` lists all of them");
  std::optional<WallTime> next;
  if (const auto due = queue.due(key))
    next = clock.wall() + std::chrono::duration_cast<WallTime::duration>(
                              std::max(*due - clock.steady(), SteadyTime::duration(0)));
  ordered_json page = job_page(*facts, next, clock.wall());
  page["operator"] = about;
  return answer(200, page);
}

}  // namespace paceline
