// SPDX-License-Identifier: Apache-2.0
// spec.scheduling.provision: a job that waits for nodes has placeholders, one for each replica, or
// an object that asks the cluster's autoscaler. They go when the gang comes, and whenever the job
// no longer waits for nodes. A running elastic job that finds no room for more replicas has them
// for the replicas that it lacks.
#include <algorithm>

#include "common/base/timestamp.hpp"
#include "operator/api/elastic.hpp"
#include "operator/api/fingerprint.hpp"
#include "operator/plan/policies/policies.hpp"

namespace paceline::plan {
namespace {

// A gang that ends at this moment may leave its room. Nodes cost money, and stay for minutes.
constexpr auto kAskAfter = std::chrono::seconds(5);
// After a refusal the operator asks again in a minute.
constexpr auto kLongestPause = std::chrono::minutes(2);
// A placeholder that a kubelet refused is not created again at once.
constexpr auto kFailurePause = std::chrono::seconds(30);
constexpr auto kPatience = std::chrono::minutes(10);
// A pod or an object from further in the future means that the clock was set back.
constexpr auto kMostAhead = std::chrono::minutes(1);
// How often an object's status is read, and when one that failed is created again.
constexpr auto kRequestInterval = std::chrono::seconds(15);
constexpr auto kRequestPause = std::chrono::minutes(5);

bool is_over(WallTime since, std::chrono::nanoseconds pause, WallTime now) {
  return now - since >= pause || since - now > kMostAhead;
}

/// The replicas for which nodes are asked, in node-rank order; none if the job waits for no nodes.
/// A refused job is among those that wait while it pauses before it asks for a placement again.
std::vector<HoldRoom> lacking(const Planner& planner) {
  std::vector<HoldRoom> rooms;
  const api::JobStatus& status = planner.out.status;
  const Memory& memory = planner.in.memory;
  if (!memory.grow || status.finished() || planner.spec.suspend || !planner.in.job.errors.empty())
    return rooms;
  if (status.placed()) {
    if (planner.out.grow_by == 0 || memory.growth) return rooms;
    const int first = api::rank_to_add(planner.spec);
    for (int i = 0; i < planner.out.grow_by; ++i)
      rooms.push_back({first + i, planner.spec.elastic->role});
  } else if (!memory.admission) {
    for (const api::Replica& replica : api::replicas_of(planner.spec))
      rooms.push_back({replica.node_rank, static_cast<std::size_t>(replica.role)});
  }
  return rooms;
}

/// A new operator leaves what it finds until its scheduler has spoken.
bool scheduler_is_silent(const Planner& planner) {
  const Memory& memory = planner.in.memory;
  if (planner.out.grow_by > 0) return memory.no_growth.empty() && !memory.growth;
  return planner.out.queued && !memory.waiting && !memory.admission;
}

/// The placeholder has the shape of another spec or role, or its room is gone.
bool is_spent(const Planner& planner, const observe::PodView& pod, std::size_t role) {
  const std::string& shape = pod.placeholder->shape;
  const std::string wanted = api::role_fingerprint(planner.in.job.fingerprint, planner.spec,
                                                   planner.spec.roles[role].name);
  const bool other = shape != wanted && !api::is_former_fingerprint(shape, planner.spec);
  return other || planner.in.memory.displaced.contains(pod.meta.uid);
}

/// False, and wakes the job later, if it is too early to ask for nodes.
bool may_ask_now(Planner& planner) {
  if (!planner.out.queued && planner.out.grow_by == 0) return false;
  const api::Condition* placed = planner.status().find(status::kPlaced);
  const WallTime since = placed == nullptr ? planner.now() : placed->since;
  const auto left = std::max(since + kAskAfter, planner.in.memory.ask_again) - planner.now();
  // A longer pause means that the clock was set back.
  if (left <= std::chrono::nanoseconds(0) || left > kLongestPause) return true;
  planner.wake_after(left);
  return false;
}

bool by_object(api::Provision way) {
  return way == api::Provision::kProvisioningRequest || way == api::Provision::kCapacityBuffer;
}

std::string told_of_placeholders(const Planner& planner) {
  std::size_t held = 0;
  std::size_t pending = 0;
  std::string first;  // of those that wait
  WallTime asked = WallTime::max();
  for (const auto& pod : planner.in.placeholders) {
    if (pod->deleting || pod->terminal()) continue;
    asked = std::min(asked, pod->created);
    ++(pod->node.empty() ? pending : held);
    if (pod->node.empty() && (first.empty() || pod->meta.name < first)) first = pod->meta.name;
  }
  if (held + pending == 0) return "";
  std::string text = "; the autoscaler is asked since " + format_time(asked) + ": " +
                     std::to_string(held) + " of " + std::to_string(held + pending) +
                     " placeholder pods hold a node";
  if (pending > 0 && planner.now() - asked > kPatience)
    text += "; no node has come for the others within 10 minutes: `kubectl describe pod " + first +
            "` shows what the autoscaler says";
  return text;
}

std::string told_of_request(const Planner& planner) {
  const auto& request = planner.in.memory.request;
  if (!request) return "";
  return "; the autoscaler is asked since " + format_time(request->created) + " by a " +
         std::string(api::to_string(request->kind)) +
         (request->answer.empty() ? ", and has not answered yet" : ": " + request->answer);
}

/// `rooms`: those for which the job has placeholders, by node rank without a gap.
void keep_placeholders(Planner& planner, const std::vector<HoldRoom>& rooms) {
  std::vector<bool> taken(rooms.size());
  for (const auto& pod : planner.in.placeholders) {
    const int place = rooms.empty() ? -1 : pod->placeholder->rank - rooms.front().node_rank;
    const bool wanted = place >= 0 && static_cast<std::size_t>(place) < rooms.size();
    if (!wanted || is_spent(planner, *pod, rooms[static_cast<std::size_t>(place)].role)) {
      planner.remove(*pod);
    } else if (pod->terminal() && is_over(pod->created, kFailurePause, planner.now())) {
      planner.remove(*pod);
    } else if (pod->terminal()) {
      planner.wake_after(pod->created + kFailurePause - planner.now());
    } else if (pod->node.empty() && planner.now() - pod->created <= kPatience) {
      planner.wake_after(pod->created + kPatience - planner.now() + std::chrono::seconds(1));
    }
    // Its name is free again when it is gone.
    if (wanted) taken[static_cast<std::size_t>(place)] = true;
  }
  const bool complete = std::ranges::find(taken, false) == taken.end();
  if (complete || !may_ask_now(planner)) return;
  for (std::size_t i = 0; i < taken.size(); ++i) {
    if (!taken[i]) planner.out.placeholders.push_back(rooms[i]);
  }
}

/// `pods`: for so many the job has a request; 0: it has none.
void keep_request(Planner& planner, std::size_t pods) {
  const bool wanted = pods > 0;
  // The size of an elastic job is not in its fingerprint.
  const std::string shape = planner.in.job.fingerprint + "-" + std::to_string(pods);
  const auto& request = planner.in.memory.request;
  if (request) {
    const bool failed = request->refused && is_over(request->created, kRequestPause, planner.now());
    planner.out.withdraw_request =
        !wanted || failed || request->kind != planner.in.provision || request->shape != shape;
    if (wanted) planner.wake_after(kRequestInterval);
    return;
  }
  planner.out.request_nodes = wanted && may_ask_now(planner);
  planner.out.request_shape = shape;
}

/// How the autoscaler was asked, and what came of it.
std::string told_of_asking(const Planner& planner) {
  std::string text =
      by_object(planner.in.provision) ? told_of_request(planner) : told_of_placeholders(planner);
  if (const std::string& refusal = planner.in.memory.no_placeholders; !refusal.empty())
    text += "; asking for nodes was refused: " + refusal;
  return text;
}

/// Why the running job has fewer replicas than it wants, and what is done about it.
void tell_what_is_lacking(Planner& planner, const std::vector<HoldRoom>& rooms) {
  const Memory& memory = planner.in.memory;
  if (memory.no_growth.empty() || !planner.status().elastic) return;
  std::string why = memory.no_growth;
  if (!rooms.empty()) why = *memory.grow + "; " + why + told_of_asking(planner);
  const api::Elastic& elastic = *planner.spec.elastic;
  planner.status().elastic->message =
      runs_smaller(planner.spec.roles[elastic.role].replicas, elastic.replicas, why);
}

}  // namespace

Waiting told_of_growth(const Planner& planner, Waiting waiting) {
  const Memory& memory = planner.in.memory;
  const api::Provision asked = planner.spec.scheduling.provision;
  if (by_object(asked) && planner.in.provision == api::Provision::kDisabled)
    waiting.message += "; spec.scheduling.provision is " + std::string(api::to_string(asked)) +
                       ", which this cluster does not serve";
  if (!memory.grow) return waiting;
  waiting.reason = "WaitingForNodes";
  waiting.message = *memory.grow + "; " + waiting.message + told_of_asking(planner);
  return waiting;
}

void provision(Planner& planner) {
  if (scheduler_is_silent(planner)) return;
  const std::vector<HoldRoom> rooms = lacking(planner);
  const api::Provision way = planner.in.provision;
  const bool by_pods = way == api::Provision::kPlaceholders;
  keep_placeholders(planner, by_pods ? rooms : std::vector<HoldRoom>());
  keep_request(planner, by_object(way) ? rooms.size() : 0);
  if (planner.out.grow_by > 0) tell_what_is_lacking(planner, rooms);
}

}  // namespace paceline::plan
