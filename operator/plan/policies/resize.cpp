// SPDX-License-Identifier: Apache-2.0
// The size of an elastic job. While it waits, the scheduler gives it the largest size that has
// room. While it runs, another size is put on record: nodes, incarnations and attempt for the whole
// gang. Then all pods are deleted, so the launchers save at one step first. When the last one is
// gone, the new gang is created, so two sizes never run side by side. A resize costs no restart.
//
// - spec.elastic.replicas became less: the last replicas go. The others keep their nodes, unless
// those take no new pods, as when they are cordoned.
//
// - It became more, or is still more than the job runs with: the gang grows when room was found for
// the new pods, and is not stopped before. What the job lacks for want of room is looked for from
// five minutes after the last resize on, so that it does not restart all the time.
//
// - A replica is lost and no node takes it: the others go on without it.
//
// Kueue admits a fixed number of pods, so its jobs shrink, and grow with the next admission only.
// With a topology assignment they keep their size: it says how many pods go to each domain.
#include <algorithm>
#include <charconv>
#include <map>

#include "common/contract/injection.hpp"
#include "operator/api/elastic.hpp"
#include "operator/plan/placement/constraints.hpp"
#include "operator/plan/placement/grants.hpp"
#include "operator/plan/policies/policies.hpp"

namespace paceline::plan {
namespace {

constexpr std::chrono::nanoseconds kGrowPause = std::chrono::minutes(5);
constexpr auto kGrowLook = std::chrono::minutes(1);  // room may come without an event
constexpr std::string_view kResizing = "Resizing";

int size_of(const api::Spec& spec) { return spec.roles[spec.elastic->role].replicas; }

std::size_t first_rank(const api::Spec& spec) {
  std::size_t rank = 0;
  for (std::size_t i = 0; i < spec.elastic->role; ++i)
    rank += static_cast<std::size_t>(spec.roles[i].replicas);
  return rank;
}

bool is_elastic(const api::Spec& spec, int node_rank) {
  const auto rank = static_cast<std::size_t>(node_rank);
  return rank >= first_rank(spec) &&
         rank < first_rank(spec) + static_cast<std::size_t>(size_of(spec));
}

/// Whether the job may get fewer replicas while it is placed.
bool may_shrink(const Planner& planner) {
  return planner.spec.elastic && planner.out.status.elastic &&
         std::ranges::all_of(planner.in.kueue.grants,
                             [](const api::PodGrant& grant) { return grant.shares.empty(); });
}

/// Whether it may get more of them. Ask only for elastic jobs.
bool may_grow(const Planner& planner) {
  return planner.out.status.workload.empty() && planner.in.kueue.queue.empty();
}

/// The incarnations of a new gang. No pod has had them.
void renew_roles(Planner& planner, int size) {
  int highest = -1;
  for (const api::RoleStatus& role : planner.status().roles) {
    for (const int n : role.incarnations) highest = std::max(highest, n);
  }
  for (std::size_t i = 0; i < planner.status().roles.size(); ++i) {
    api::RoleStatus& role = planner.status().roles[i];
    if (i == planner.spec.elastic->role) role.replicas = size;
    role.ready = role.succeeded = role.failed = 0;
    role.incarnations.assign(static_cast<std::size_t>(role.replicas), highest + 1);
  }
}

/// Records the gang of the new size, and stops the present one. `nodes`: by node rank.
void resize_to(Planner& planner, const std::vector<std::string>& nodes, std::string where,
               const std::string& why) {
  const int before = size_of(planner.spec);
  const int size = before + static_cast<int>(nodes.size()) - api::replica_count(planner.spec);
  const std::string message = "resized from " + std::to_string(before) + " to " +
                              std::to_string(size) + " replicas: " + why;
  api::JobStatus& status = planner.status();
  if (const auto& summary = planner.in.memory.summary) {
    planner.keep_goodput(*summary, planner.in.memory.summary_at);
    planner.keep_checkpoint(*summary);
    status.restarts = std::max(status.restarts, summary->restarts);
    status.attempt = std::max(status.attempt, summary->attempt);
  }
  ++status.attempt;
  renew_roles(planner, size);
  status.set_nodes(nodes);
  status.placement_where = std::move(where);
  // All pods are new, so they may all have this operator's runtime.
  status.runtime_image = planner.in.runtime_image;
  status.contract = contract::kRuntimeContract;
  record_size(planner, size, why);
  planner.set(status::kRestarting, true, kResizing, message);
  planner.clear(status::kReplacing, kResizing, message);
  planner.clear(status::kRunning, kResizing, message);
  planner.remove_live_pods();
  planner.out.find_nodes.clear();
}

/// The replica that the pod was made for, in a gang of any size; nullopt: its role is not known.
std::optional<api::Replica> replica_of(const Planner& planner, const observe::PodView& pod) {
  const std::string& name = pod.meta.name;
  const std::string& job = planner.in.job.meta.name;
  const std::size_t incarnation = name.rfind('-');
  if (incarnation == std::string::npos || incarnation == 0) return std::nullopt;
  const std::size_t index = name.rfind('-', incarnation - 1);
  if (index == std::string::npos || index <= job.size()) return std::nullopt;
  const std::string role_name = name.substr(job.size() + 1, index - job.size() - 1);
  const auto role = std::ranges::find(planner.spec.roles, role_name, &api::Role::name);
  if (role == planner.spec.roles.end()) return std::nullopt;
  int number = 0;
  std::from_chars(name.data() + index + 1, name.data() + incarnation, number);
  return api::Replica{static_cast<int>(role - planner.spec.roles.begin()), number,
                      pod.gang->node_rank};
}

/// The replicas of the gang before the resize whose pods still exist, and node rank 0 in any case.
std::vector<ReplicaState> old_gang(const Planner& planner,
                                   const std::vector<ReplicaState>& replicas) {
  std::map<int, ReplicaState> newest;
  newest.emplace(0, ReplicaState{});
  const int present = replicas.front().incarnation;
  for (const auto& pod : planner.in.pods) {
    if (!pod->gang || pod->gang->incarnation >= present) continue;
    const auto replica = replica_of(planner, *pod);
    if (!replica) continue;
    ReplicaState& state = newest[replica->node_rank];
    if (state.pod && state.incarnation > pod->gang->incarnation) continue;
    state.replica = *replica;
    state.incarnation = pod->gang->incarnation;
    state.pod_name = pod->meta.name;
    state.pod = pod;
    state.judgement = judge(pod.get());
  }
  std::vector<ReplicaState> states;
  for (auto& [rank, state] : newest) states.push_back(std::move(state));
  return states;
}

void take_over(Planner& planner, const ReplicaState& state) {
  const auto& report = state.judgement.report;
  if (!report) return;
  planner.keep_last_words(*report, state.replica.node_rank);
  planner.status().restarts = std::max(planner.status().restarts, report->restarts);
  planner.status().attempt = std::max(planner.status().attempt, report->attempt + 1);
}

/// By role: whether its replicas may have new pods on a node. Of what admission adds to a pod,
/// Kueue's flavors are known in any case.
std::vector<Constraints> constraints_of(const Planner& planner) {
  std::vector<Constraints> all = planner.in.admitted;
  if (all.size() != planner.spec.roles.size()) {
    all.clear();
    for (const api::Role& role : planner.spec.roles)
      all.push_back(read_constraints(role.pod_template.value("spec", nlohmann::json::object())));
  }
  for (std::size_t role = 0; role < all.size(); ++role) {
    all[role].excluded = excluded_nodes(planner.out.status, planner.in.now);
    if (role < planner.in.kueue.grants.size()) add_grant(all[role], planner.in.kueue.grants[role]);
  }
  return all;
}

/// The nodes of a gang with at most `most` replicas of the elastic role, by node rank: those of the
/// present one that take new pods, without those of `lost` replicas. Empty if another role has no
/// node then, or the elastic one has too few.
std::vector<std::string> keep(const Planner& planner, const std::vector<std::string>& nodes,
                              const std::vector<int>& lost, int most) {
  const std::vector<Constraints> constraints = constraints_of(planner);
  std::vector<std::string> kept;
  int size = 0;
  for (const api::Replica& replica : api::replicas_of(planner.spec)) {
    const auto role = static_cast<std::size_t>(replica.role);
    const std::string& name = nodes[static_cast<std::size_t>(replica.node_rank)];
    const auto node = planner.in.node(name);
    const bool fit = node != nullptr && refusal(constraints[role], *node, nullptr).empty() &&
                     std::ranges::find(lost, replica.node_rank) == lost.end();
    if (role != planner.spec.elastic->role) {
      if (!fit) return {};
      kept.push_back(name);
    } else if (fit && size < most) {
      kept.push_back(name);
      ++size;
    }
  }
  return size < planner.spec.elastic->min_replicas ? std::vector<std::string>() : kept;
}

bool is_usable(const Planner& planner, const std::string& node) {
  const auto view = planner.in.node(node);
  return view != nullptr && view->ready && !view->unschedulable;
}

/// Inserts the nodes of new replicas behind those of the elastic role.
std::vector<std::string> with_more(const Planner& planner, const std::vector<std::string>& more) {
  std::vector<std::string> nodes = planner.out.status.nodes();
  const auto end = first_rank(planner.spec) + static_cast<std::size_t>(size_of(planner.spec));
  nodes.insert(nodes.begin() + static_cast<std::ptrdiff_t>(std::min(end, nodes.size())),
               more.begin(), more.end());
  return nodes;
}

/// Grows into the room that was found, or asks for some. True if it grows.
bool grow_when_it_fits(Planner& planner) {
  const api::Elastic& elastic = *planner.spec.elastic;
  const api::ElasticStatus& known = *planner.status().elastic;
  const int lacking = elastic.replicas - size_of(planner.spec);
  const bool asked_before = known.wanted == elastic.replicas;
  if (asked_before && known.since) {
    const auto left = *known.since + kGrowPause - planner.now();
    // A longer wait means that the clock was set back.
    if (left > std::chrono::nanoseconds(0) && left <= kGrowPause) {
      planner.wake_after(left);
      return false;
    }
  }
  const auto& growth = planner.in.memory.growth;
  const bool found =
      growth && !growth->nodes.empty() && growth->nodes.size() <= static_cast<std::size_t>(lacking);
  const std::vector<std::string> nodes =
      found ? with_more(planner, growth->nodes) : std::vector<std::string>();
  const auto usable = [&](const std::string& node) { return is_usable(planner, node); };
  if (found && std::ranges::all_of(nodes, usable)) {
    const bool all = growth->nodes.size() == static_cast<std::size_t>(lacking);
    resize_to(planner, nodes, growth->where,
              all ? "there is room for all" : "there is no room for more yet");
    return true;
  }
  planner.out.grow_by = lacking;
  planner.out.look_again = true;
  planner.wake_after(kGrowLook);
  return false;
}

}  // namespace

std::vector<int> sizes_of(const api::Spec& spec, std::size_t pods) {
  std::vector<int> sizes;
  for (const api::Role& role : spec.roles) sizes.push_back(role.replicas);
  if (!spec.elastic)
    return pods == static_cast<std::size_t>(api::replica_count(spec)) ? sizes : std::vector<int>();
  const auto size = api::elastic_size(spec, pods);
  if (!size) return {};
  sizes[spec.elastic->role] = *size;
  return sizes;
}

void note_elastic(Planner& planner) {
  std::optional<api::ElasticStatus>& elastic = planner.status().elastic;
  if (!planner.spec.elastic) {
    elastic.reset();
    return;
  }
  if (!elastic) elastic.emplace();
  elastic->selector = api::elastic_selector(planner.in.job.job);
}

void record_size(Planner& planner, int size, const std::string& why) {
  if (!planner.status().elastic) return;
  api::ElasticStatus& elastic = *planner.status().elastic;
  elastic.replicas = size;
  elastic.wanted = planner.spec.elastic->replicas;
  elastic.since = std::chrono::floor<std::chrono::seconds>(planner.now());
  elastic.message = runs_smaller(size, elastic.wanted, why);
}

std::string runs_smaller(int size, int wanted, const std::string& why) {
  if (size >= wanted) return "";
  return status::shortened("runs with " + std::to_string(size) + " of " + std::to_string(wanted) +
                           " replicas: " + why);
}

bool stops_old_size(const Planner& planner) {
  return planner.out.status.is_true(status::kRestarting) &&
         planner.out.status.is(status::kRestarting, kResizing);
}

bool stops_for_resize(Planner& planner, const std::vector<ReplicaState>& replicas) {
  if (!stops_old_size(planner)) return false;
  const std::vector<ReplicaState> old = old_gang(planner, replicas);
  for (const ReplicaState& state : old) take_over(planner, state);
  // It may have ended before it was stopped. A job that has ended never runs again.
  if (job_verdict(planner, old)) return true;
  if (planner.any_live_pod()) return true;
  planner.set(status::kRestarting, true, "Replacing",
              planner.status().find(status::kRestarting)->message);
  return false;
}

bool shrink(Planner& planner, const std::vector<std::string>& nodes, const std::string& what) {
  if (!may_shrink(planner)) return false;
  const std::vector<int>& homeless = planner.out.find_nodes;
  for (const int rank : homeless) {
    // Before the scheduler has looked there may be a node for it.
    if (!planner.in.memory.homeless.contains(rank) || !is_elastic(planner.spec, rank)) return false;
  }
  const std::vector<std::string> kept =
      keep(planner, nodes, homeless, planner.spec.elastic->replicas);
  if (kept.empty()) return false;
  resize_to(planner, kept, "",
            what + "; no node takes the replacement: " + planner.in.memory.no_replacement_node);
  return true;
}

bool resize(Planner& planner, const std::vector<ReplicaState>& replicas) {
  if (!planner.spec.elastic || !planner.status().elastic) return false;
  const api::Elastic& elastic = *planner.spec.elastic;
  const int size = size_of(planner.spec);
  if (size == elastic.replicas) {
    if (planner.status().elastic->wanted != size) record_size(planner, size, "");
    return false;
  }
  const bool runs = planner.status().is_true(status::kRunning) &&
                    !status::replaces_pods(planner.status()) &&
                    std::ranges::all_of(replicas, [](const ReplicaState& state) {
                      return state.judgement.outcome == Outcome::kRunning;
                    });
  if (!runs) return false;
  const bool more = size < elastic.replicas;
  if (more ? !may_grow(planner) : !may_shrink(planner)) {
    if (planner.status().elastic->wanted != elastic.replicas)
      record_size(planner, size, kAdmitsNoMore);
    return false;
  }
  if (more) return grow_when_it_fits(planner);
  const std::string why = "spec.elastic.replicas is " + std::to_string(elastic.replicas);
  const std::vector<std::string> kept =
      keep(planner, planner.status().nodes(), {}, elastic.replicas);
  if (kept.empty()) {
    planner.unplace(kResizing, why + ", and nodes of the job take no new pods", false);
  } else {
    resize_to(planner, kept, "", why);
  }
  return true;
}

}  // namespace paceline::plan
