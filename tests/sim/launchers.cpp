// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/launchers.hpp"

#include <nlohmann/json.hpp>

#include "common/contract/labels.hpp"

namespace paceline::sim {

using nlohmann::json;

bool Launchers::serves(const std::string& node) const {
  const auto& nodes = chaos_.laws.facts().nodes;
  const auto found = nodes.find(node);
  return found != nodes.end() && found->second.ready;
}

void Launchers::schedule() {
  const Facts& facts = chaos_.laws.facts();
  std::map<std::string, int> used;
  for (const auto& [name, pod] : facts.pods) {
    if (!pod.terminal()) used[pod.node] += pod.cpu;
  }
  std::vector<std::pair<std::string, std::string>> bound;
  for (const auto& [name, pod] : facts.pods) {
    if (!pod.node.empty() || pod.gated || pod.deleting || pod.pinned.empty() || !serves(pod.pinned))
      continue;
    if (facts.nodes.at(pod.pinned).tainted) continue;
    if (used[pod.pinned] + pod.cpu > facts.nodes.at(pod.pinned).cpu) continue;
    used[pod.pinned] += pod.cpu;
    bound.emplace_back(name, pod.pinned);
  }
  for (const auto& [name, node] : bound) poke(name, R"({"spec":{"nodeName":")" + node + "\"}}");
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

void Launchers::act(const PodFacts& pod, bool everything) {
  if (pod.deleting) {
    const auto decided = ending_.find(pod.uid);
    if (!pod.ended() && pod.phase == "Running" && !everything && chaos_.chance(0.5)) {
      report_end(pod, decided != ending_.end() ? decided->second
                                               : End{contract::kExitTerminated,
                                                     R"({"version":1,"verdict":"Terminated"})"});
    } else {
      cluster_.erase(kube::kPods, "default", pod.name);
    }
  } else if (pod.trainer_ended) {
    if (!pod.terminal()) report_phase(pod);
  } else if (const auto decided = ending_.find(pod.uid); decided != ending_.end()) {
    report_end(pod, decided->second);
    // Sometimes both appear in one update.
    if (chaos_.chance(0.5)) report_phase(pod);
  } else if (pod.phase == "Pending" || pod.phase.empty()) {
    const std::string ip = "10.0.0." + std::to_string(by_ip_.size());
    by_ip_[ip] = pod.owner;
    poke(pod.name, R"({"status":{"phase":"Running","podIP":")" + ip +
                       R"(","containerStatuses":[{"name":"trainer","state":{"running":{}}}]}})");
    Gang& gang = gangs_[pod.owner];
    gang.attempt = std::max(gang.attempt, pod.attempt);
    gang.restarts = std::max(gang.restarts, pod.restarts);
  }
}

std::map<std::string, Launchers::Members> Launchers::whole_gangs() const {
  const Facts& facts = chaos_.laws.facts();
  std::map<std::string, Members> gangs;
  for (const auto& [name, pod] : facts.pods) {
    if (!pod.owner.empty() && pod.phase == "Running" && !pod.trainer_ended && !pod.deleting &&
        serves(pod.node) && !ending_.contains(pod.uid))
      gangs[pod.owner].push_back(&pod);
  }
  std::erase_if(gangs, [&](const auto& entry) {
    const JobFacts* job = facts.job_of(*entry.second.front());
    return job == nullptr || static_cast<int>(entry.second.size()) != job->replicas;
  });
  return gangs;
}

void Launchers::end_gang(const std::string& uid, const Members& members, int exit_code,
                         const char* verdict) {
  const Gang& gang = gangs_[uid];
  const json message = {
      {"version", 1}, {"verdict", verdict}, {"attempt", gang.attempt}, {"restarts", gang.restarts}};
  for (const PodFacts* pod : members) ending_[pod->uid] = {exit_code, message.dump()};
}

void Launchers::run_pods(bool everything) {
  std::vector<PodFacts> due;
  for (const auto& [name, pod] : chaos_.laws.facts().pods) {
    if (!pod.owner.empty() && (!pod.terminal() || pod.deleting) && serves(pod.node) &&
        (everything || chaos_.chance(0.5)))
      due.push_back(pod);
  }
  for (const PodFacts& pod : due) act(pod, everything);
  for (const auto& [uid, members] : whole_gangs()) {
    if (everything || chaos_.chance(0.1)) end_gang(uid, members, contract::kExitOk, "Succeeded");
  }
}

void Launchers::fail_rank() {
  const auto gangs = whole_gangs();
  if (gangs.empty()) return;
  const auto& [uid, members] =
      *std::next(gangs.begin(), static_cast<std::ptrdiff_t>(chaos_.pick(gangs.size())));
  Gang& gang = gangs_[uid];
  if (gang.restarts < chaos_.laws.facts().job_of(*members.front())->max_restarts) {
    ++gang.attempt;
    ++gang.restarts;
  } else {
    end_gang(uid, members, contract::kExitJobFailed, "Failed");
  }
}

void Launchers::kill(const std::string& name) {
  const PodFacts pod = chaos_.laws.facts().pods.at(name);
  if (pod.phase != "Running" || pod.trainer_ended || ending_.contains(pod.uid)) return;
  report_end(pod, {137, ""});
  if (chaos_.chance(0.5)) report_phase(pod);
}

Result<std::string> Launchers::summary(const std::string& pod_ip) const {
  const auto job = by_ip_.find(pod_ip);
  const auto gang = job == by_ip_.end() ? gangs_.end() : gangs_.find(job->second);
  if (gang == gangs_.end()) return fail(Code::kUnavailable, Origin::kHttp, "nobody listens");
  const bool whole = whole_gangs().contains(job->second);
  return json{{"version", 1},
              {"phase", whole ? "Running" : "Restarting"},
              {"attempt", gang->second.attempt},
              {"restarts", gang->second.restarts}}
      .dump();
}

}  // namespace paceline::sim
