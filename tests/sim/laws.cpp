// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/laws.hpp"

#include <algorithm>
#include <ranges>

#include "common/kube/api/kueue.hpp"

namespace paceline::sim {
namespace {

/// True if the gang was placed anew between two states that both have a placement.
bool starts_anew(const JobFacts& before, const JobFacts& after) {
  return before.incarnations.size() != after.incarnations.size() ||
         std::ranges::all_of(std::views::iota(std::size_t{0}, after.incarnations.size()),
                             [&](std::size_t rank) {
                               return before.incarnations[rank] != after.incarnations[rank];
                             });
}

}  // namespace

std::string_view name_of(Law law) {
  switch (law) {
    case Law::kOnePodPerReplica: return "OnePodPerReplica";
    case Law::kGatesOpenAsASet: return "GatesOpenAsASet";
    case Law::kTakenBackAsASet: return "TakenBackAsASet";
    case Law::kOnRecord: return "OnRecord";
    case Law::kQueuedHoldsNothing: return "QueuedHoldsNothing";
    case Law::kRestartBudget: return "RestartBudget";
    case Law::kRestartsHaveACause: return "RestartsHaveACause";
    case Law::kFailuresCost: return "FailuresCost";
    case Law::kGoesAlone: return "GoesAlone";
    case Law::kNamesMissingImages: return "NamesMissingImages";
    case Law::kCountsNeverFall: return "CountsNeverFall";
    case Law::kFinishedStaysFinished: return "FinishedStaysFinished";
    case Law::kKeepsLogs: return "KeepsLogs";
    case Law::kDeletesItsOwn: return "DeletesItsOwn";
    case Law::kForcesOnLostNodes: return "ForcesOnLostNodes";
    case Law::kNotInAnOutage: return "NotInAnOutage";
    case Law::kHonoursTaints: return "HonoursTaints";
    case Law::kOneLeaf: return "OneLeaf";
    case Law::kWithinBounds: return "WithinBounds";
    case Law::kOneSize: return "OneSize";
    case Law::kOneSpec: return "OneSpec";
    case Law::kRunsOnce: return "RunsOnce";
    case Law::kOwned: return "Owned";
    case Law::kRoom: return "Room";
    case Law::kOwnPorts: return "OwnPorts";
    case Law::kQuota: return "Quota";
    case Law::kInItsGroup: return "InItsGroup";
    case Law::kKueueQuota: return "KueueQuota";
    case Law::kFewWrites: return "FewWrites";
    case Law::kComesToRest: return "ComesToRest";
    case Law::kEveryJobEnds: return "EveryJobEnds";
    case Law::kMarksCostNothing: return "MarksCostNothing";
    case Law::kWarnsInTime: return "WarnsInTime";
    case Law::kWarnsSparingly: return "WarnsSparingly";
    case Law::kSavesOnce: return "SavesOnce";
    case Law::kStraysGo: return "StraysGo";
    case Law::kAsksSparingly: return "AsksSparingly";
    case Law::kNamesMissingRights: return "NamesMissingRights";
    case Law::kNobodyWaits: return "NobodyWaits";
    case Law::kNothingLeft: return "NothingLeft";
  }
  return "";
}

void Laws::report(Law law, std::string what) {
  if (!broken_) broken_ = Broken{law, std::move(what)};
}

void Laws::on_change(const kube::FakeCluster::Sight& sight) {
  const bool gone = sight.type == kube::WatchEventType::kDeleted;
  if (sight.resource.plural == kube::kPods.plural) {
    const auto known =
        facts_.pods.find(sight.object["metadata"]["name"].get_ref<const std::string&>());
    PodFacts pod = read_pod(sight.object, known != facts_.pods.end() ? &known->second : nullptr);
    if (late_ && known == facts_.pods.end() && !pod.placeholder) pod.stray = !is_on_record(pod);
    const std::pair slot(pod.owner, pod.rank);
    if (pod.placeholder) {
      follow_placeholder(pod, gone, known == facts_.pods.end());
      return;
    }
    const bool live = !gone && !pod.over() && !pod.stray;
    if (const auto it = alive_.find(slot); it != alive_.end() && it->second == pod.name && !live)
      alive_.erase(it);
    if (live && !pod.owner.empty()) {
      const auto [it, fresh] = alive_.try_emplace(slot, pod.name);
      if (!fresh && it->second != pod.name)
        report(Law::kOnePodPerReplica, pod.name + " lives beside " + it->second);
    }
    const bool opens = known != facts_.pods.end() && known->second.gated && !pod.gated && !gone;
    const bool made = known == facts_.pods.end() && !gone;
    // Those that gave up waiting for it are then judged by themselves.
    if (known != facts_.pods.end() && known->second.lacks_image && !known->second.deleting &&
        (gone || pod.deleting))
      failures_[pod.owner] += static_cast<int>(facts_.pods.size());
    follow(pod, gone);
    follow_untouched(pod, gone);
    if (gone) {
      facts_.pods.erase(pod.name);
      return;
    }
    facts_.pods.insert_or_assign(pod.name, pod);
    if (made && late_ && pod.gated && !pod.stray)
      gated_[{pod.owner, pod.incarnation}].insert(pod.rank);
    if (made && operator_acts_) created(pod);
    if (opens) opened(pod);
  } else if (sight.resource.plural == kube::kTrainingJobs.plural) {
    JobFacts job = read_job(sight.object);
    const auto known = facts_.jobs.find(job.name);
    if (gone) {
      if (known != facts_.jobs.end()) facts_.jobs.erase(known);
      return;
    }
    if (known != facts_.jobs.end() && known->second.uid == job.uid) check_job(known->second, job);
    facts_.jobs.insert_or_assign(job.name, std::move(job));
  } else if (sight.resource.plural == kube::kKueueWorkloads.plural) {
    follow_workload(sight.object, gone);
  } else if (sight.resource.plural == "podgroups") {
    follow_group(sight.object, gone);
  } else if (sight.resource.plural == kube::kNodes.plural) {
    follow_node(sight.object, gone);
  }
}

bool Laws::is_on_record(const PodFacts& pod) const {
  const JobFacts* job = facts_.job_of(pod);
  const auto rank = static_cast<std::size_t>(pod.rank);
  return job != nullptr && !job->finished() && rank < job->nodes.size() &&
         rank < job->incarnations.size() && job->incarnations[rank] == pod.incarnation;
}

void Laws::follow_node(const nlohmann::json& object, bool gone) {
  NodeFacts node = read_node(object);
  const auto known = facts_.nodes.find(node.name);
  if (!node.ready || gone) {
    for (const auto& [name, pod] : facts_.pods) {
      if (pod.node != node.name) continue;
      follow(pod, true);
      follow_untouched(pod, true);
    }
  }
  if (gone) {
    gone_nodes_.insert(node.name);
    if (known != facts_.nodes.end()) facts_.nodes.erase(known);
    return;
  }
  const NodeFacts* before = known != facts_.nodes.end() ? &known->second : nullptr;
  follow_marks(node, before);
  node.was_silent =
      !node.ready || gone_nodes_.contains(node.name) || (before != nullptr && before->was_silent);
  node.was_closed = node.closed() || (before != nullptr && before->was_closed);
  node.most_cpu = std::max(node.cpu, before != nullptr ? before->most_cpu : 0);
  node.most_slots = std::max(node.slots, before != nullptr ? before->most_slots : 0);
  node.relabelled =
      before != nullptr && (before->relabelled || (before->leaf != node.leaf && before->ready));
  facts_.nodes.insert_or_assign(node.name, std::move(node));
}

int Laws::live_pods(const std::string& owner) const {
  return static_cast<int>(std::ranges::count_if(facts_.pods, [&](const auto& known) {
    const PodFacts& pod = known.second;
    return pod.owner == owner && !pod.over() && !pod.placeholder && !pod.stray;
  }));
}

void Laws::follow_workload(const nlohmann::json& workload, bool gone) {
  bool reserves = false;
  for (const auto& condition :
       workload.value("/status/conditions"_json_pointer, nlohmann::json::array())) {
    const bool holds = condition["status"] == "True";
    if (condition["type"] == "QuotaReserved") reserves = holds;
  }
  const std::string& owner =
      workload["metadata"]["ownerReferences"][0]["uid"].get_ref<const std::string&>();
  if (reserves && !gone) {
    const int pods = reserved_[owner] = pods_with_quota(workload);
    if (operator_acts_ && expect_room_ && live_pods(owner) > pods)
      report(Law::kKueueQuota, std::to_string(live_pods(owner)) +
                                   " pods of a job live, which keeps quota for " +
                                   std::to_string(pods));
    return;
  }
  // Of two leaders the older one can still create one pod.
  const bool given_back = reserved_.erase(owner) > 0 && operator_acts_ && expect_room_;
  for (const auto& [name, pod] : facts_.pods) {
    if (given_back && pod.owner == owner && !pod.over() && !pod.stray)
      report(Law::kKueueQuota, name + " lives and its job gives back its quota");
  }
}

void Laws::follow_group(const nlohmann::json& group, bool gone) {
  const std::string& name = group["metadata"]["name"].get_ref<const std::string&>();
  if (!gone) {
    const nlohmann::json policy = group["spec"].value("schedulingPolicy", nlohmann::json());
    const auto& least = policy.is_null() ? group["spec"]["minMember"] : policy["gang"]["minCount"];
    if (late_ && !facts_.pod_groups.contains(name)) facts_.late_groups.insert(name);
    facts_.pod_groups[name] = least.get<int>();
    return;
  }
  facts_.pod_groups.erase(name);
  facts_.late_groups.erase(name);
  // Of two leaders the older one can still create one pod.
  for (const auto& [pod_name, pod] : facts_.pods) {
    // Pods of a job that has gone go with it.
    if (operator_acts_ && expect_room_ && pod.group == name && !pod.over() && !pod.stray &&
        facts_.job_of(pod) != nullptr)
      report(Law::kInItsGroup, pod_name + " lives and its PodGroup is deleted");
  }
}

void Laws::follow_placeholder(const PodFacts& pod, bool gone, bool made) {
  const JobFacts* job = facts_.job_of(pod);
  if (gone) {
    facts_.pods.erase(pod.name);
    return;
  }
  facts_.pods.insert_or_assign(pod.name, pod);
  if (!made || !operator_acts_) return;
  if (pod.owner.empty()) report(Law::kOwned, pod.name + " has no owner");
  const bool lacks_replicas = job != nullptr && job->size > 0 && job->size < job->wanted;
  if (job != nullptr && ((!job->nodes.empty() && !lacks_replicas) || job->finished()))
    report(Law::kOnRecord,
           pod.name + " is made for a job that is " + (job->finished() ? "finished" : "placed"));
}

void Laws::created(const PodFacts& pod) {
  const JobFacts* job = facts_.job_of(pod);
  if (pod.owner.empty()) {
    report(Law::kOwned, pod.name + " has no owner");
    return;
  }
  if (job == nullptr) return;  // the job was just deleted; garbage collection deletes the pod
  const auto quota = reserved_.find(pod.owner);
  if (job->in_kueue && expect_room_ && quota == reserved_.end())
    report(Law::kKueueQuota, pod.name + " is made without quota");
  if (job->in_kueue && expect_room_ && quota != reserved_.end() &&
      live_pods(pod.owner) > quota->second)
    report(Law::kKueueQuota,
           pod.name + " is made beyond the quota for " + std::to_string(quota->second) + " pods");
  const auto rank = static_cast<std::size_t>(pod.rank);
  const bool placed = rank < job->nodes.size() && rank < job->incarnations.size();
  if (!placed || job->finished()) {
    report(Law::kOnRecord, pod.name + " is made for a job that is " +
                               (job->finished() ? "finished" : "not placed"));
  } else if (!pod.group.empty()) {
    if (!facts_.pod_groups.contains(pod.group))
      report(Law::kInItsGroup, pod.name + " is made before its PodGroup");
    if (job->pod_group != pod.group || !pod.pinned.empty() ||
        job->incarnations[rank] != pod.incarnation)
      report(Law::kOnRecord, pod.name + " of PodGroup " + pod.group + " is pinned to \"" +
                                 pod.pinned + "\", on record are PodGroup \"" + job->pod_group +
                                 "\" and incarnation " + std::to_string(job->incarnations[rank]));
  } else if (job->nodes[rank] != pod.pinned || job->incarnations[rank] != pod.incarnation) {
    report(Law::kOnRecord, pod.name + " is pinned to " + pod.pinned + ", on record are " +
                               job->nodes[rank] + " and incarnation " +
                               std::to_string(job->incarnations[rank]));
  }
  // A leader whose cache lags may hand on an older account.
  if (expect_knowledge_ && pod.rank == 0 && pod.seconds != job->seconds)
    report(Law::kOnRecord, pod.name + " knows of " + std::to_string(pod.seconds) +
                               " s of its job, on record are " + std::to_string(job->seconds));
  for (std::size_t i = 0; placed && i < kFeatures.size(); ++i) {
    if (pod.features[i] == job->features[i]) continue;
    report(Law::kOnRecord, pod.name + " has the " + std::string(kFeatures[i][0]) + " \"" +
                               pod.features[i] + "\", on record is \"" + job->features[i] +
                               "\" for its gang");
  }
  if (pod.gated) {
    gated_[{pod.owner, pod.incarnation}].insert(pod.rank);
  } else if (job->stage == "Creating") {
    report(Law::kGatesOpenAsASet, pod.name + " is made without a gate while its set is created");
  }
  if (pod.gated && job->stage == "Starting")
    report(Law::kGatesOpenAsASet, pod.name + " is made with a gate in a set that has none");
  const auto recorded = recorded_at_peace_.find({pod.owner, pod.rank});
  const bool at_peace = recorded != recorded_at_peace_.end() && recorded->second == pod.incarnation;
  if (expect_room_) {
    check_room(pod.place(), at_peace);
    check_ports(pod, at_peace);
  }
  if (const auto avoided = job->excluded.find(pod.place());
      at_peace && avoided != job->excluded.end() && pod.created < avoided->second)
    report(Law::kOnRecord, pod.name + " is made for node " + pod.place() +
                               ", which its job avoids until " + avoided->second);
  const auto node = facts_.nodes.find(pod.place());
  if (at_peace && node != facts_.nodes.end() && node->second.closed())
    report(Law::kHonoursTaints,
           pod.name + " is made for node " + pod.place() + ", which takes no new pods");
  const auto leaf_of = [this](const PodFacts& one) {
    const auto known = facts_.nodes.find(one.place());
    return known == facts_.nodes.end() ? std::string() : known->second.leaf;
  };
  const auto relabelled = [this](const PodFacts& one) {
    const auto known = facts_.nodes.find(one.place());
    return known == facts_.nodes.end() || known->second.relabelled;
  };
  for (const auto& [name, other] : facts_.pods) {
    if (other.stray) continue;
    if (other.owner == pod.owner && job->one_leaf && !other.ended() && !other.deleting &&
        leaf_of(other) != leaf_of(pod) && !relabelled(other) && !relabelled(pod))
      report(Law::kOneLeaf, pod.name + " is made for node " + pod.place() + ", but " + name +
                                " is under another leaf, on " + other.place());
    if (expect_room_ && other.owner == pod.owner && !other.over() && !other.placeholder &&
        other.gang != pod.gang)
      report(Law::kOneSize, pod.name + " is made for a gang of " + std::to_string(pod.gang) +
                                " beside " + name + " of " + std::to_string(other.gang));
    if (other.owner == pod.owner && other.role == pod.role && !other.terminal() &&
        !other.deleting && other.image != pod.image)
      report(Law::kOneSpec,
             pod.name + " runs image " + pod.image + " beside " + name + " with " + other.image);
  }
}

void Laws::opened(const PodFacts& pod) {
  const JobFacts* job = facts_.job_of(pod);
  if (job == nullptr) return;
  const auto made = gated_[{pod.owner, pod.incarnation}].size();
  if (made != static_cast<std::size_t>(job->replicas)) {
    report(Law::kGatesOpenAsASet, "the gate of " + pod.name + " opens when " +
                                      std::to_string(made) + " of " +
                                      std::to_string(job->replicas) + " pods were made");
  }
}

void Laws::on_refusal(const nlohmann::json& object) {
  const PodFacts pod = read_pod(object, nullptr);
  const JobFacts* job = facts_.job_of(pod);
  const bool new_set =
      job != nullptr && !job->restarting && !job->replacing &&
      (job->stage == "Creating" || job->stage == "Starting" || job->stage == "WaitingForScheduler");
  // Of two leaders, one does not know what the other was refused.
  if (new_set && expect_room_) refused_.insert(pod.owner);
}

void Laws::on_kill(const PodFacts& pod, bool oom) {
  const JobFacts* job = facts_.job_of(pod);
  if (job == nullptr || job->member(pod.rank).blameless) return;
  if (oom && (job->oom_action == "Ignore" || job->oom_action == "ReplaceNode")) return;
  ++failures_[pod.owner];
  killed_.insert(pod.uid);
}

void Laws::on_failure(const std::string& uid, int attempt) {
  ++failures_[uid];
  attempts_[uid] = std::max(attempts_[uid], attempt);
}

void Laws::on_restart(const std::string& uid, int attempt) {
  attempts_[uid] = std::max(attempts_[uid], attempt);
}

void Laws::on_training(const std::string& uid, bool trains) {
  if (trains) {
    gathered_.insert(uid);
    note_untouched(uid);
  } else {
    gathered_.erase(uid);
    training_.erase(uid);
    untouched_.erase(uid);
  }
}

void Laws::check_restarts(const JobFacts& before, const JobFacts& after) {
  const int failures = failures_.contains(after.uid) ? failures_.at(after.uid) : 0;
  const bool exhausted = after.reason == "RestartsExhausted" || after.reason == "RanksFailed";
  if (after.restarts + (exhausted ? 1 : 0) > failures) {
    report(Law::kRestartsHaveACause, after.name + " spent " + std::to_string(after.restarts) +
                                         " restarts" + (exhausted ? " and failed" : "") + " for " +
                                         std::to_string(failures) +
                                         " failures of its own: " + after.message);
  }
  if (killed_.empty() || before.nodes.empty() || after.nodes.empty() || after.finished() ||
      after.restarts > before.restarts)
    return;
  for (const auto& [name, pod] : facts_.pods) {
    const auto rank = static_cast<std::size_t>(pod.rank);
    if (pod.owner == after.uid && killed_.contains(pod.uid) && !pod.deleting &&
        rank < before.incarnations.size() && rank < after.incarnations.size() &&
        before.incarnations[rank] == pod.incarnation &&
        after.incarnations[rank] != pod.incarnation && !starts_anew(before, after))
      report(Law::kFailuresCost, name + " failed by itself and is replaced for nothing");
  }
}

/// True if every member that the gang waits for runs.
bool Laws::holds_together(const JobFacts& job) const {
  std::ptrdiff_t running = 0;
  for (const auto& [name, pod] : facts_.pods) {
    if (pod.placeholder || pod.stray || pod.owner != job.uid || pod.phase != "Running" ||
        pod.trainer_ended || pod.deleting)
      continue;
    const auto node = facts_.nodes.find(pod.node);
    if (node != facts_.nodes.end() && node->second.ready && !job.member(pod.rank).alone) ++running;
  }
  return running == std::ranges::count(job.members, false, &MemberFacts::alone);
}

/// Notes that a gang may have lost a member that it waits for.
void Laws::follow(const PodFacts& pod, bool gone) {
  if (pod.owner.empty() || pod.stray || !training_.contains(pod.owner)) return;
  const JobFacts* job = facts_.job_of(pod);
  const bool runs = !gone && pod.phase == "Running" && !pod.trainer_ended && !pod.deleting;
  if (job == nullptr || (!runs && !job->member(pod.rank).alone)) training_.erase(pod.owner);
}

void Laws::check_alone(const JobFacts& before, const JobFacts& after) {
  const bool loners =
      std::ranges::any_of(after.members, [](const MemberFacts& member) { return member.alone; });
  // Of two leaders, the older one believes what rank 0's launcher told it long ago.
  if (!loners || !expect_room_) return;
  if (after.spares > 0) return check_spares(before, after);
  const bool stays = !before.nodes.empty() && !after.nodes.empty() && !starts_anew(before, after);
  // A replacement must not run another spec than the rest, so all start again by the new one.
  if (!stays || before.edited || after.edited) {
    training_.erase(after.uid);
  } else if (training_.contains(after.uid)) {
    const int counted = attempts_.contains(after.uid) ? attempts_.at(after.uid) : 0;
    if (after.attempt > std::max(before.attempt, counted) ||
        (after.restarting && !before.restarting))
      report(Law::kGoesAlone, after.name + " starts again as a whole: " + after.message);
  }
  if (after.restarting) {
    training_.erase(after.uid);
  } else if (stays && !after.edited && after.running && gathered_.contains(after.uid) &&
             holds_together(after)) {
    training_.insert(after.uid);
  }
}

/// A gang that trains without its lost members is not taken back because no node takes them.
void Laws::check_spares(const JobFacts& before, const JobFacts& after) {
  const bool lost_its_place = !before.nodes.empty() && after.nodes.empty();
  if (lost_its_place && gathered_.contains(after.uid) && before.running &&
      (after.reason == "NoReplacementNode" || after.reason == "BindTimeout"))
    report(Law::kGoesAlone, after.name + " trains and is queued again: " + after.message);
}

void Laws::check_job(const JobFacts& before, const JobFacts& after) {
  if (after.restarts > after.max_restarts) {
    report(Law::kRestartBudget, after.name + " restarted " + std::to_string(after.restarts) +
                                    " times of " + std::to_string(after.max_restarts));
  }
  if (after.seconds < before.seconds)
    report(Law::kCountsNeverFall, after.name + ": " + std::to_string(before.seconds) +
                                      " s of its time became " + std::to_string(after.seconds));
  if (after.disruptions < before.disruptions)
    report(Law::kCountsNeverFall, after.name + ": " + std::to_string(before.disruptions) +
                                      " disruptions became " + std::to_string(after.disruptions));
  if (after.attempt < before.attempt || after.restarts < before.restarts) {
    report(Law::kCountsNeverFall, after.name + ": attempt " + std::to_string(before.attempt) +
                                      " to " + std::to_string(after.attempt) + ", restarts " +
                                      std::to_string(before.restarts) + " to " +
                                      std::to_string(after.restarts));
  }
  if (after.fewest > 0 && !after.nodes.empty() &&
      (after.size < after.fewest || after.size > after.most))
    report(Law::kWithinBounds, after.name + " has " + std::to_string(after.size) + " workers, of " +
                                   std::to_string(after.fewest) + " to " +
                                   std::to_string(after.most));
  if (after.saved_step < before.saved_step)
    report(Law::kCountsNeverFall, after.name + ": step " + std::to_string(before.saved_step) +
                                      ", which was saved, became " +
                                      std::to_string(after.saved_step));
  check_restarts(before, after);
  check_alone(before, after);
  check_untouched(before, after);
  for (std::size_t rank = 0; at_peace_ && rank < after.incarnations.size(); ++rank) {
    if (rank >= before.incarnations.size() || before.incarnations[rank] != after.incarnations[rank])
      recorded_at_peace_[{after.uid, static_cast<int>(rank)}] = after.incarnations[rank];
  }
  const bool loses_its_place = !before.nodes.empty() && after.nodes.empty();
  for (const auto& [name, pod] : facts_.pods) {
    if (expect_knowledge_ && loses_its_place && pod.owner == after.uid && pod.succeeded)
      report(Law::kRunsOnce, after.name + " is placed again, and " + name + " has succeeded");
  }
  if (after.nodes.empty() || after.finished()) {
    refused_.erase(after.uid);
  } else if (refused_.contains(after.uid) && (after.stage == "Ungated" || after.stage == "Bound")) {
    report(Law::kTakenBackAsASet, after.name + " goes on, though one of its pods was refused");
  }
  if (before.finished() && after.phase != before.phase)
    report(Law::kFinishedStaysFinished,
           after.name + " went from " + before.phase + " to " + after.phase);
}

void Laws::check_room(const std::string& node, bool with_foreign) {
  const auto known = facts_.nodes.find(node);
  if (known == facts_.nodes.end()) return;
  int used = 0;
  int slots = 0;
  for (const auto& [name, pod] : facts_.pods) {
    if (pod.over() || pod.placeholder || pod.stray || pod.place() != node) continue;
    // It may have come after the placement.
    if ((pod.owner.empty() && !with_foreign) || !pod.group.empty()) continue;
    used += pod.cpu;
    slots += pod.slots;
  }
  // What it offers may have become less after the placement.
  const int most_slots = with_foreign ? known->second.slots : known->second.most_slots;
  const int most_cpu = with_foreign ? known->second.cpu : known->second.most_cpu;
  if (slots > most_slots) {
    report(Law::kRoom, "node " + node + " offers " + std::to_string(most_slots) +
                           " slots and was given pods with " + std::to_string(slots));
  }
  if (used > most_cpu) {
    report(Law::kRoom, "node " + node + " has " + std::to_string(most_cpu) +
                           " cpus and was given pods of " + std::to_string(used));
  }
}

void Laws::check_ports(const PodFacts& pod, bool with_foreign) {
  for (const auto& [name, other] : facts_.pods) {
    if (name == pod.name || other.over() || other.stray || other.place() != pod.place()) continue;
    if (other.owner.empty() && !with_foreign) continue;  // as with room
    const auto shared = std::ranges::find_first_of(pod.host_ports, other.host_ports);
    if (shared != pod.host_ports.end())
      report(Law::kOwnPorts, pod.name + " is made for port " + std::to_string(*shared) +
                                 " of node " + pod.place() + ", which " + name + " has");
  }
}

void Laws::on_delete(const std::string& name, const std::string& uid, bool force) {
  const auto found = facts_.pods.find(name);
  if (uid.empty()) report(Law::kDeletesItsOwn, "deletes " + name + " whatever its UID");
  if (found == facts_.pods.end() || found->second.uid != uid) return;
  const PodFacts& pod = found->second;
  if (pod.orphaned) return;  // that may be news to the operator
  if (pod.owner.empty()) {
    report(Law::kDeletesItsOwn, "deletes " + name + ", which belongs to no job");
    return;
  }
  const JobFacts* job = facts_.job_of(pod);
  if (job != nullptr && untouched_.contains(pod.owner) && !pod.ended() && !pod.placeholder &&
      !pod.stray)
    report(Law::kMarksCostNothing, "deletes " + name + " of a gang that trains");
  const auto rank = static_cast<std::size_t>(pod.rank);
  if (job != nullptr && job->finished() && job->clean_pod_policy != "All" && pod.ended() &&
      !pod.deleting && !pod.placeholder && rank < job->incarnations.size() &&
      job->incarnations[rank] == pod.incarnation) {
    report(Law::kKeepsLogs, "deletes " + name + ", which ended by itself, with its log");
  }
  if (force && !pod.terminal() && expect_knowledge_ && facts_.nodes.contains(pod.node) &&
      facts_.in_outage())
    report(Law::kNotInAnOutage, "deletes " + name + " by force while most nodes are silent");
  // Not checked: how long the node was silent. The operator decides that by its own, older view.
  const auto node = facts_.nodes.find(pod.node);
  if (force && !pod.terminal() && node != facts_.nodes.end() && !node->second.was_silent)
    report(Law::kForcesOnLostNodes,
           "deletes " + name + " by force on node " + pod.node + ", which was always there");
}

}  // namespace paceline::sim
