// SPDX-License-Identifier: Apache-2.0
// A job without a placement. It has no pods, reports what it waits for, and takes the placement
// that the scheduler found for the whole gang.
#include <algorithm>

#include "common/base/timestamp.hpp"
#include "common/contract/injection.hpp"
#include "operator/api/template/containers.hpp"
#include "operator/plan/policies/policies.hpp"

namespace paceline::plan {
namespace {

constexpr auto kLookAgain = std::chrono::seconds(15);

/// Starts new incarnations: names and incarnations of earlier placements are never used again.
/// `sizes`: the replicas of each role.
void next_life(Planner& planner, const std::vector<int>& sizes) {
  const bool again = !planner.status().roles.empty();
  std::vector<api::RoleStatus> before = std::move(planner.status().roles);
  planner.status().roles.clear();
  int highest = -1;
  for (const api::RoleStatus& role : before) {
    for (const int n : role.incarnations) highest = std::max(highest, n);
  }
  // Roles may have changed during suspension. One number above all used numbers is valid for every
  // role.
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    planner.status().roles.push_back(
        {planner.spec.roles[i].name, sizes[i], 0, 0, 0,
         std::vector<int>(static_cast<std::size_t>(sizes[i]), highest + 1)});
  }
  if (again) ++planner.status().attempt;
}

/// What the job's RuntimeProfile says; null if there is none. A broken one, which can only be the
/// default, may have been written to turn acceleration off.
const api::RuntimeProfile* profile_of(const Planner& planner) {
  static const api::RuntimeProfile kUnreadable{std::string(api::kDefaultProfile),
                                               {api::AccelerationMode::kDisabled, {}, {}}};
  const auto& profile = planner.in.profile;
  if (profile == nullptr) return nullptr;
  return profile->errors.empty() ? &profile->profile : &kUnreadable;
}

/// Why the RuntimeProfile that the job names cannot be used. A broken default profile does not hold
/// back jobs.
std::optional<Waiting> missing_profile(const Planner& planner) {
  const std::string& name = planner.spec.runtime_profile;
  if (name.empty()) return std::nullopt;
  const auto& profile = planner.in.profile;
  if (profile == nullptr) {
    return Waiting{
        "RuntimeProfileNotFound",
        "RuntimeProfile " + name +
            " does not exist; create it, or change spec.acceleration.runtimeProfileName"};
  }
  if (profile->errors.empty()) return std::nullopt;
  return Waiting{"RuntimeProfileInvalid",
                 "RuntimeProfile " + name + ": " + api::to_error(profile->errors).message};
}

/// Whether the scheduler refused two placements for one reason, and neither the spec has changed
/// since nor the pause is over. Placed=False says so.
bool refused_twice(Planner& planner) {
  const BindRefusal& refusal = planner.in.memory.bind_refusal;
  const auto left = refusal.until - planner.now();
  if (refusal.generation != planner.in.job.job.metadata.generation ||
      left <= std::chrono::nanoseconds(0) || left > kBindPause)
    return false;
  planner.out.queued = false;
  planner.wake_after(left);
  return true;
}

/// Says until when a job that could run waits for a closer domain.
Waiting told_of_limit(Waiting waiting) {
  if (waiting.until)
    waiting.message += " until " + format_time(*waiting.until) +
                       ", then starts where there is room (spec.topology.preferredTimeout)";
  return waiting;
}

/// Says how to have Kueue choose nodes that the job's own level allows.
Waiting told_of_assignment(const Planner& planner, Waiting waiting) {
  const KueueSeen& kueue = planner.in.kueue;
  const bool assigned = std::ranges::any_of(
      kueue.grants, [](const api::PodGrant& grant) { return !grant.shares.empty(); });
  if (!assigned || !planner.spec.required_topology || waiting.reason != "TooLarge") return waiting;
  if (const api::LevelAsk& asked = kueue.workload->level; asked.required) {
    waiting.message += "; Kueue chose the nodes of each role by itself, within one " + asked.label +
                       ": it keeps only two roles together, of which one has a single replica";
  } else {
    waiting.message +=
        "; Kueue chose the nodes, and could not be asked for the level of spec.topology.required: "
        "name the level's node label in the annotation kueue.x-k8s.io/podset-required-topology of "
        "the templates";
  }
  return waiting;
}

/// The limit of the wait counts from the time of this condition, whichever operator looks.
void note_room(Planner& planner, const std::string& reason) {
  const api::Condition* known = planner.status().find(status::kCouldRun);
  // The clock was set back: it would wait until that has caught up.
  if (known != nullptr && known->since > planner.now())
    planner.clear(status::kCouldRun, "CountsAnew");
  planner.set(status::kCouldRun, true, reason,
              "there is room, but not as close as spec.topology.preferred asks");
}

/// Records the placement that the scheduler found. `sizes`: the replicas of each role.
void take_place(Planner& planner, const std::vector<int>& sizes) {
  const Memory& memory = planner.in.memory;
  next_life(planner, sizes);
  if (planner.spec.elastic)
    record_size(planner, sizes[planner.spec.elastic->role],
                planner.in.kueue.queue.empty() ? memory.admission_smaller : kAdmitsNoMore);
  planner.status().set_nodes(*memory.admission);
  planner.status().placement_where = memory.admission_where;
  planner.status().slots = memory.admission_slots;
  planner.status().placed_spec = planner.in.job.fingerprint;
  planner.status().runtime_image = planner.in.runtime_image;
  planner.status().contract = contract::kRuntimeContract;
  if (const auto& workload = planner.in.kueue.workload; !planner.in.kueue.queue.empty())
    planner.status().workload = workload->meta.name;
  planner.status().acceleration = api::resolve(planner.spec.acceleration, profile_of(planner));
  planner.status().start_time = std::chrono::floor<std::chrono::seconds>(planner.now());
  planner.set(status::kQuotaReserved, true, "Reserved");
  // After a refusal the API server may refuse a part again.
  const bool gated = planner.in.gated || memory.retries > 0;
  const std::size_t pods = memory.admission->size();
  planner.set(status::kPlaced, true, gated ? "Creating" : "Starting",
              "creates " + std::to_string(pods) + " pods");
  // A Running condition of an earlier placement must not be taken for this one's.
  if (!gated) {
    pods_start(planner, pods);
  } else if (planner.status().find(status::kRunning) != nullptr) {
    planner.set(status::kRunning, false, "PodsStarting");
  }
  leave_to_other(planner);
  planner.out.queued = false;
}

}  // namespace

void queue_up(Planner& planner) {
  planner.out.queued = true;
  const Memory& memory = planner.in.memory;
  if (planner.any_live_pod()) {
    planner.remove_live_pods();
    planner.out.queued = false;
    const api::Condition* placed = planner.status().find(status::kPlaced);
    if (placed == nullptr)
      planner.set(status::kPlaced, false, "Stopping", "waits for its pods to stop");
    return;
  }
  if (auto trouble = missing_profile(planner)) {
    planner.set(status::kPlaced, false, trouble->reason, std::move(trouble->message));
    planner.out.queued = false;
    return;
  }
  if (refused_twice(planner)) return;
  const auto left = memory.retry_at - planner.now();
  if (left > std::chrono::nanoseconds(0) && left <= kLongestBackOff) {
    if (memory.refusal)
      planner.set(status::kPlaced, false, memory.refusal->reason, memory.refusal->message);
    planner.out.queued = false;
    planner.wake_after(left);
    return;
  }
  if (waits_for_quota(planner) || waits_for_last_group(planner)) return;
  // Placeholders use the namespace's quota: where there is one, the gang comes after them.
  if (memory.admission && planner.in.gated &&
      !std::ranges::all_of(planner.in.placeholders, [](const auto& pod) { return pod->over(); }))
    return;
  const std::vector<int> sizes =
      memory.admission ? sizes_of(planner.spec, memory.admission->size()) : std::vector<int>();
  planner.out.drop_admission = memory.admission && sizes.empty();
  if (!sizes.empty()) return take_place(planner, sizes);
  if (memory.waiting) {
    const auto until = memory.waiting->until.value_or(WallTime::max());
    if (memory.waiting->until) note_room(planner, memory.waiting->reason);
    if (memory.waiting->until && until > planner.now()) planner.wake_after(until - planner.now());
    // Also once after the last exclusion has ended.
    if (until <= planner.now() || api::requires_gpu_direct(planner.spec) || memory.volumes_open ||
        !excluded_nodes(planner.status(), planner.now() - 2 * kLookAgain).empty()) {
      // Limits pass, agents die and return, volumes come and go, and exclusions end, without an
      // event.
      planner.out.look_again = true;
      planner.wake_after(kLookAgain);
    }
    Waiting told =
        told_of_growth(planner, told_of_assignment(planner, told_of_limit(*memory.waiting)));
    planner.set(status::kPlaced, false, told.reason, std::move(told.message));
    if (memory.waiting->reason == "QuotaExceeded")
      planner.set(status::kQuotaReserved, false, "QuotaExceeded", memory.waiting->message);
    return;
  }
  // Keep the reason why the pods were removed until the scheduler has looked at the job again.
  const api::Condition* placed = planner.status().find(status::kPlaced);
  if (placed == nullptr || placed->reason == "Suspended" || placed->reason == "InvalidSpec") {
    planner.set(status::kPlaced, false, "Queued", "waits for the scheduler");
  }
}

}  // namespace paceline::plan
