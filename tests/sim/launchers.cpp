// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/launchers.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/contract/labels.hpp"
#include "tests/sim/job.hpp"

namespace paceline::sim {

using nlohmann::json;

namespace {

constexpr int kSecondsBetweenLooks = 5;

}  // namespace

bool Launchers::serves(const std::string& node) const {
  const auto& nodes = chaos_.laws.facts().nodes;
  const auto found = nodes.find(node);
  return found != nodes.end() && found->second.ready;
}

void Launchers::schedule() {
  const Facts& facts = chaos_.laws.facts();
  std::map<std::string, int> used;
  std::set<std::pair<std::string, int>> ports;  // of nodes
  for (const auto& [name, pod] : facts.pods) {
    if (pod.terminal()) continue;
    used[pod.node] += pod.cpu;
    for (const int port : pod.host_ports) ports.emplace(pod.node, port);
  }
  Bindings bound;
  for (const auto& [name, pod] : facts.pods) {
    if (!pod.node.empty() || pod.gated || pod.deleting || pod.pinned.empty() || !serves(pod.pinned))
      continue;
    if (facts.nodes.at(pod.pinned).closed()) continue;
    if (used[pod.pinned] + pod.cpu > facts.nodes.at(pod.pinned).cpu) continue;
    const auto taken = [&](int port) { return ports.contains({pod.pinned, port}); };
    if (std::ranges::any_of(pod.host_ports, taken)) continue;
    used[pod.pinned] += pod.cpu;
    for (const int port : pod.host_ports) ports.emplace(pod.pinned, port);
    bound.emplace_back(name, pod.pinned);
  }
  bind_groups(used, bound);
  // The gangs' pods come first, by their priority.
  for (const auto& [name, pod] : facts.pods) {
    if (!pod.placeholder || !pod.node.empty() || pod.deleting || pod.terminal()) continue;
    for (const auto& [node, known] : facts.nodes) {
      if (!known.ready || known.closed() || used[node] + pod.cpu > known.cpu) continue;
      used[node] += pod.cpu;
      bound.emplace_back(name, node);
      break;
    }
  }
  for (const auto& [name, node] : bound) poke(name, R"({"spec":{"nodeName":")" + node + "\"}}");
}

/// As another scheduler does: a whole PodGroup or nothing of it. Sometimes a part comes first.
void Launchers::bind_groups(std::map<std::string, int>& used, Bindings& bound) {
  const Facts& facts = chaos_.laws.facts();
  for (const auto& [group, least] : facts.pod_groups) {
    std::vector<const PodFacts*> unbound;
    int members = 0;
    for (const auto& [name, pod] : facts.pods) {
      if (pod.group != group || pod.deleting || pod.terminal() || pod.gated) continue;
      ++members;
      if (pod.node.empty()) unbound.push_back(&pod);
    }
    if (members < least || unbound.empty()) continue;
    std::map<std::string, int> trial = used;
    Bindings chosen;
    for (const PodFacts* pod : unbound) {
      const auto node = std::ranges::find_if(facts.nodes, [&](const auto& entry) {
        const auto& [name, known] = entry;
        return known.ready && !known.closed() && trial[name] + pod->cpu <= known.cpu;
      });
      if (node == facts.nodes.end()) break;
      trial[node->first] += pod->cpu;
      chosen.emplace_back(pod->name, node->first);
    }
    if (chosen.size() < unbound.size()) continue;
    if (chaos_.rates.kill_pod > 0 && chaos_.chance(0.1)) {
      trial = used;
      chosen.resize(1);
      trial[chosen.front().second] += unbound.front()->cpu;
    }
    used = std::move(trial);
    bound.insert(bound.end(), chosen.begin(), chosen.end());
  }
}

void Launchers::report_end(const PodFacts& pod, const End& end) {
  exit_codes_[pod.uid] = end.exit_code;
  json terminated = {{"exitCode", end.exit_code}, {"message", end.message}};
  if (end.exit_code == 137) terminated["reason"] = "OOMKilled";
  const json status = {
      {"status",
       {{"containerStatuses",
         json::array({{{"name", "trainer"}, {"state", {{"terminated", terminated}}}}})}}}};
  poke(pod.name, status.dump());
}

void Launchers::report_phase(const PodFacts& pod) {
  poke(pod.name, exit_codes_[pod.uid] == 0 ? R"({"status":{"phase":"Succeeded"}})"
                                           : R"({"status":{"phase":"Failed"}})");
}

/// The end of a deletion. A pod with a finalizer stays, but it has ended.
void Launchers::take_away(const PodFacts& pod) {
  if (!pod.kept) {
    cluster_.erase(kube::kPods, "default", pod.name);
  } else if (!pod.terminal() && (pod.placeholder || pod.phase != "Running")) {
    poke(pod.name, R"({"status":{"phase":"Failed"}})");
  } else if (!pod.terminal()) {
    if (!pod.trainer_ended) report_end(pod, last_words(pod));
    report_phase(pod);
  }
}

/// How a pod ends that was told to.
Launchers::End Launchers::last_words(const PodFacts& pod) const {
  if (const auto decided = ending_.find(pod.uid); decided != ending_.end()) return decided->second;
  const auto saved = last_words_.find(pod.uid);
  return {contract::kExitTerminated,
          saved != last_words_.end() ? saved->second : R"({"version":1,"verdict":"Terminated"})"};
}

/// No kubelet has seen them, so Kubernetes' garbage collector of pods does it.
void Launchers::collect_unbound() {
  std::vector<PodFacts> due;
  for (const auto& [name, pod] : chaos_.laws.facts().pods) {
    if (pod.deleting && pod.node.empty()) due.push_back(pod);
  }
  for (const PodFacts& pod : due) take_away(pod);
}

void Launchers::let_go(bool all) {
  std::vector<std::string> due;
  for (const auto& [name, pod] : chaos_.laws.facts().pods) {
    if (pod.kept && (all || pod.deleting)) due.push_back(name);
  }
  if (due.empty()) return;
  if (!all) due = {due[chaos_.pick(due.size())]};
  for (const std::string& name : due) poke(name, R"({"metadata":{"finalizers":null}})");
}

void Launchers::act(const PodFacts& pod, bool everything) {
  if (pod.deleting) {
    if (!pod.placeholder && !pod.ended() && pod.phase == "Running" && !everything &&
        chaos_.chance(0.5)) {
      report_end(pod, last_words(pod));
    } else {
      take_away(pod);
    }
  } else if (pod.placeholder) {
    if (pod.phase != "Running") poke(pod.name, R"({"status":{"phase":"Running"}})");
  } else if (pod.trainer_ended) {
    if (!pod.terminal()) report_phase(pod);
  } else if (const auto decided = ending_.find(pod.uid); decided != ending_.end()) {
    report_end(pod, decided->second);
    // Sometimes both appear in one update.
    if (chaos_.chance(0.5)) report_phase(pod);
  } else if (pod.image == kMissingImage && lack_images_) {
    const json waiting = {{"reason", "ImagePullBackOff"},
                          {"message", "Back-off pulling image \"" + pod.image + "\""}};
    const json container = {{"name", "trainer"}, {"state", {{"waiting", waiting}}}};
    if (!pod.lacks_image)
      poke(pod.name, json{{"status", {{"containerStatuses", json::array({container})}}}}.dump());
  } else if (pod.phase == "Pending" || pod.phase.empty()) {
    const std::string ip = "10.0.0." + std::to_string(by_ip_.size());
    if (!pod.stray) by_ip_[ip] = pod.owner;
    poke(pod.name, R"({"status":{"phase":"Running","podIP":")" + ip +
                       R"(","containerStatuses":[{"name":"trainer","state":{"running":{}}}]}})");
    if (pod.stray) return;  // the launchers of its gang turn it away
    Gang& gang = gangs_[pod.owner];
    gang.attempt = std::max(gang.attempt, pod.attempt);
    gang.restarts = std::max(gang.restarts, pod.restarts);
    if (pod.rank == 0) {
      gang.verdict.clear();
      gang.seconds = pod.seconds;
      ++gang.hosts;
      gang.saved.reset();
      gang.warned.clear();
      gang.saves_for.clear();
    }
  }
}

bool Launchers::runs(const PodFacts& pod) const {
  return !pod.owner.empty() && !pod.placeholder && !pod.stray && pod.phase == "Running" &&
         !pod.trainer_ended && !pod.deleting && serves(pod.node) && !ending_.contains(pod.uid);
}

/// By job, the pods whose launchers run.
std::map<std::string, Launchers::Members> Launchers::present() const {
  std::map<std::string, Members> gangs;
  for (const auto& [name, pod] : chaos_.laws.facts().pods) {
    if (runs(pod)) gangs[pod.owner].push_back(&pod);
  }
  return gangs;
}

/// A member that is lost leaves its place to a spare, and all ranks start anew.
void Launchers::follow_with_spares(const std::string& uid, Gang& gang, const JobFacts& job,
                                   const Members& members) {
  const bool hosted = std::ranges::count(members, 0, &PodFacts::rank) > 0;
  const bool enough = hosted && static_cast<int>(members.size()) >= job.places();
  if (gang.trains && enough && members.size() < gang.here) {
    save_before_an_end(uid, gang);
    ++gang.attempt;
    gang.restarts_now = true;
    chaos_.laws.on_restart(uid, gang.attempt);
  }
  gang.here = members.size();
  gang.trains = enough;
}

/// Notes which gangs have become complete, and which have lost a member that all wait for.
std::map<std::string, Launchers::Members> Launchers::follow() {
  auto gangs = present();
  for (auto& [uid, gang] : gangs_) {
    const bool trained = gang.trains;
    const auto members = gangs.find(uid);
    const JobFacts* job =
        members == gangs.end() ? nullptr : chaos_.laws.facts().job_of(*members->second.front());
    const auto other_size = [&](const PodFacts* pod) { return pod->gang != job->places(); };
    if (job == nullptr || std::ranges::any_of(members->second, other_size)) {
      gang.trains = false;  // those of the former size wait to be stopped
    } else if (job->spares > 0) {
      follow_with_spares(uid, gang, *job, members->second);
    } else if (members->second.size() == job->members.size()) {
      gang.trains = true;
    } else {
      const auto awaited = [&](const PodFacts* pod) { return !job->member(pod->rank).alone; };
      gang.trains = gang.trains && std::ranges::count_if(members->second, awaited) ==
                                       std::ranges::count(job->members, false, &MemberFacts::alone);
    }
    if (trained && !gang.trains) save_before_an_end(uid, gang);
    chaos_.laws.on_training(uid, gang.trains);
  }
  return gangs;
}

/// The gangs that train, and of which every member that decides is there.
std::map<std::string, Launchers::Members> Launchers::training_gangs() {
  auto gangs = follow();
  std::erase_if(gangs, [&](const auto& entry) {
    const auto& [uid, members] = entry;
    if (!gangs_[uid].trains) return true;
    const JobFacts& job = *chaos_.laws.facts().job_of(*members.front());
    const auto decides = [&](const PodFacts* pod) { return job.member(pod->rank).decides; };
    return std::ranges::count_if(members, decides) + job.spares <
           std::ranges::count(job.members, true, &MemberFacts::decides);
  });
  return gangs;
}

void Launchers::end_gang(const std::string& uid, const Members& members, int exit_code,
                         const char* verdict) {
  Gang& gang = gangs_[uid];
  gang.verdict = verdict;
  const json message = {
      {"version", 1}, {"verdict", verdict}, {"attempt", gang.attempt}, {"restarts", gang.restarts}};
  for (const PodFacts* pod : members) ending_[pod->uid] = {exit_code, message.dump()};
}

/// Launchers whose gang lacks a pod without an image stop waiting for it.
void Launchers::give_up() {
  std::set<std::string> lacking;
  for (const auto& [name, pod] : chaos_.laws.facts().pods) {
    if (pod.lacks_image && !pod.deleting && !pod.terminal()) lacking.insert(pod.owner);
  }
  if (lacking.empty()) return;
  const json message = {{"version", 1}, {"verdict", "RendezvousTimeout"}};
  for (const auto& [uid, members] : present()) {
    if (!lacking.contains(uid) || gangs_[uid].trains) continue;
    const PodFacts pod = *members.front();
    if (!chaos_.chance(0.1)) continue;
    report_end(pod, {contract::kExitRendezvous, message.dump()});
    report_phase(pod);
  }
}

void Launchers::run_pods(bool everything) {
  std::vector<PodFacts> due;
  (void)follow();
  end_saves(everything);
  for (const auto& [name, pod] : chaos_.laws.facts().pods) {
    if (!pod.owner.empty() && (!pod.terminal() || pod.deleting) && serves(pod.node) &&
        (everything || chaos_.chance(0.5)))
      due.push_back(pod);
  }
  for (const PodFacts& pod : due) act(pod, everything);
  collect_unbound();
  if (!everything) give_up();
  for (const auto& [uid, members] : training_gangs()) {
    if (everything || chaos_.chance(0.1)) end_gang(uid, members, contract::kExitOk, "Succeeded");
  }
}

void Launchers::fail_rank() {
  auto gangs = follow();
  std::erase_if(gangs, [&](const auto& entry) { return !gangs_[entry.first].trains; });
  if (gangs.empty()) return;
  const auto& [uid, members] =
      *std::next(gangs.begin(), static_cast<std::ptrdiff_t>(chaos_.pick(gangs.size())));
  Gang& gang = gangs_[uid];
  const JobFacts& job = *chaos_.laws.facts().job_of(*members.front());
  const MemberFacts failed = job.member(members[chaos_.pick(members.size())]->rank);
  if (failed.blameless) return;
  const bool ends = gang.restarts >= job.max_restarts;
  if (!ends && !failed.alone) ++gang.attempt;
  if (!ends) ++gang.restarts;
  chaos_.laws.on_failure(uid, gang.attempt);
  if (ends) end_gang(uid, members, contract::kExitJobFailed, "Failed");
}

void Launchers::kill(const std::string& name) {
  const PodFacts pod = chaos_.laws.facts().pods.at(name);
  if (pod.phase != "Running" || pod.trainer_ended || ending_.contains(pod.uid)) return;
  if (pod.placeholder) return poke(name, R"({"status":{"phase":"Failed"}})");
  if (!pod.deleting) chaos_.laws.on_kill(pod, true);
  report_end(pod, {137, ""});
  if (chaos_.chance(0.5)) report_phase(pod);
}

void Launchers::lose_containers(const std::string& node) {
  std::vector<PodFacts> due;
  for (const auto& [name, pod] : chaos_.laws.facts().pods) {
    if (pod.node == node && pod.phase == "Running" && !pod.trainer_ended) due.push_back(pod);
  }
  const json terminated = {{"exitCode", 137}, {"reason", "ContainerStatusUnknown"}};
  const json container = {{"name", "trainer"}, {"state", {{"terminated", terminated}}}};
  const json status = {{"phase", "Failed"}, {"containerStatuses", json::array({container})}};
  for (const PodFacts& pod : due) {
    exit_codes_[pod.uid] = terminated["exitCode"];
    poke(pod.name, json{{"status", status}}.dump());
  }
}

void Launchers::evict(const std::string& name, Eviction cause) {
  const PodFacts pod = chaos_.laws.facts().pods.at(name);
  if (!runs(pod)) return;
  const json condition = {{"type", "DisruptionTarget"}, {"status", "True"}};
  json status = {{"conditions", json::array({condition})}};
  if (cause != Eviction::kPreemption) {
    const bool own = cause == Eviction::kOwnLimit;
    if (own) status.erase("conditions");
    status.update({{"phase", "Failed"},
                   {"reason", "Evicted"},
                   {"message", own ? "Pod ephemeral local storage usage exceeds the total limit of "
                                     "containers 1Gi. "
                                   : "The node was low on resource: memory. "}});
    if (own) chaos_.laws.on_kill(pod, false);
  }
  poke(name, json{{"status", status}}.dump());
}

Result<std::string> Launchers::summary(const std::string& pod_ip) {
  const auto job = by_ip_.find(pod_ip);
  const auto gang = job == by_ip_.end() ? gangs_.end() : gangs_.find(job->second);
  if (gang == gangs_.end()) return fail(Code::kUnavailable, Origin::kHttp, "nobody listens");
  if (is_silent(job->second))
    return fail(Code::kUnavailable, Origin::kHttp, "nobody answers from a silent node");
  const auto gangs = follow();
  const auto members = gangs.find(job->second);
  const bool gathered = members != gangs.end() && !members->second.empty();
  const JobFacts* known = gathered ? chaos_.laws.facts().job_of(*members->second.front()) : nullptr;
  const std::string& verdict = gang->second.verdict;
  const bool whole = known != nullptr && members->second.size() == known->members.size();
  const bool unheard = chaos_.defect == Defect::kHearsOfNoRecovery && !whole;
  const bool trains =
      gang->second.trains && !std::exchange(gang->second.restarts_now, false) && !unheard;
  gang->second.seconds += kSecondsBetweenLooks;
  json document = {{"version", 1},
                   {"phase", !verdict.empty() ? verdict
                             : trains         ? "Running"
                                              : "Restarting"},
                   {"attempt", gang->second.attempt},
                   {"restarts", gang->second.restarts},
                   {"goodput", {{"seconds", gang->second.seconds}}},
                   {"gathered", gathered ? members->second.size() : 0},
                   {"expected", known != nullptr ? known->places() : 0}};
  if (gang->second.saved) document["checkpoint"] = told_of(*gang->second.saved);
  return document.dump();
}

}  // namespace paceline::sim
