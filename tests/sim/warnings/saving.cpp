// SPDX-License-Identifier: Apache-2.0
// Launchers: what those of a gang do when a node may soon be lost, or a member is asked to end: all
// ranks save at one step. Without a draw, so that seeds on record keep their schedules.
#include <algorithm>

#include <nlohmann/json.hpp>

#include "common/contract/labels.hpp"
#include "tests/sim/launchers.hpp"

namespace paceline::sim {

using nlohmann::json;

namespace {

constexpr std::chrono::milliseconds kTimeout{1500};  // the operator's
constexpr std::chrono::minutes kLapses{10};          // of a warning that is not repeated

/// How the launchers of a job take a warning.
enum class Manner { kRefuse, kTakeLong, kMayNotAnswer, kTake };

Manner manner_of(const std::string& uid) {
  return static_cast<Manner>(static_cast<unsigned char>(uid.back()) % 4);
}

/// The program of some jobs ends when it has saved, and starts again.
bool ends_after_a_save(const std::string& uid) {
  return static_cast<unsigned char>(uid.back()) % 3 == 0;
}

}  // namespace

json Launchers::told_of(const Saved& saved) {
  return {{"lastStep", saved.step}, {"attempt", saved.attempt}};
}

bool Launchers::is_silent(const std::string& uid) const {
  return std::ranges::any_of(chaos_.laws.facts().pods, [&](const auto& entry) {
    const PodFacts& pod = entry.second;
    return pod.owner == uid && pod.rank == 0 && !pod.deleting && !serves(pod.node);
  });
}

Result<std::string> Launchers::ask(const std::string& pod_ip, const apply::Warnings& warned) {
  const auto job = by_ip_.find(pod_ip);
  if (job == by_ip_.end() || warned.nodes.empty()) return summary(pod_ip);
  const std::string& uid = job->second;
  const int times = chaos_.defect == Defect::kRepeatsWarnings ? 2 : 1;
  for (int i = 0; i < times; ++i) chaos_.laws.on_warning(uid, warned, clock_.steady());
  if (is_silent(uid)) return summary(pod_ip);
  Gang& gang = gangs_[uid];
  const Manner manner = manner_of(uid);
  const int asked = ++gang.asked;
  const bool mute = manner == Manner::kMayNotAnswer && asked % 3 == 0;
  if (mute || (manner == Manner::kTakeLong && asked % 4 == 0)) clock_.advance(kTimeout);
  // Of an answer that does not come, nobody knows whether the warning was heard.
  if (manner != Manner::kRefuse && !(mute && asked % 2 == 0)) warn(gang, warned.nodes);
  if (mute) return fail(Code::kTimeout, Origin::kHttp, "simulated: no answer", true);
  return summary(pod_ip);
}

void Launchers::warn(Gang& gang, const std::vector<std::string>& nodes) {
  const SteadyTime now = clock_.steady();
  std::erase_if(gang.warned, [&](const auto& node) { return now - node.second > kLapses; });
  std::vector<std::string> unheard;
  for (const std::string& node : nodes) {
    if (const auto known = gang.warned.find(node); known != gang.warned.end()) {
      known->second = now;
    } else {
      unheard.push_back(node);
    }
  }
  if (gang.trains && gang.saves_for.empty()) gang.saves_for = std::move(unheard);
}

void Launchers::save(Gang& gang) {
  if (chaos_.defect == Defect::kLosesCheckpoints && gang.saved &&
      gang.saved->attempt < gang.attempt)
    gang.step = 0;
  gang.saved = {gang.attempt, ++gang.step};
}

void Launchers::end_saves(bool everything) {
  for (auto& [uid, gang] : gangs_) {
    if (gang.trains) ++gang.step;
    if (gang.saves_for.empty()) continue;
    if (!gang.trains) {
      gang.saves_for.clear();  // the next repetition asks again
      continue;
    }
    if (!everything && manner_of(uid) == Manner::kTakeLong && chaos_.chance(0.7)) continue;
    save(gang);
    chaos_.laws.on_save(uid, gang.hosts, gang.saves_for);
    for (const std::string& node : gang.saves_for) {
      if (chaos_.defect != Defect::kForgetsWarnings) gang.warned[node] = clock_.steady();
    }
    gang.saves_for.clear();
    if (!ends_after_a_save(uid)) continue;
    ++gang.attempt;
    chaos_.laws.on_restart(uid, gang.attempt);
  }
}

void Launchers::save_before_an_end(const std::string& uid, Gang& gang) {
  std::vector<std::string> leaving;  // UIDs
  for (const auto& [name, pod] : chaos_.laws.facts().pods) {
    if (pod.owner == uid && pod.deleting && !pod.placeholder && pod.phase == "Running" &&
        !pod.trainer_ended && serves(pod.node))
      leaving.push_back(pod.uid);
  }
  if (leaving.empty()) return;
  save(gang);
  const json message = {
      {"version", 1}, {"verdict", "Terminated"}, {"checkpoint", told_of(*gang.saved)}};
  for (const std::string& pod : leaving) last_words_[pod] = message.dump();
}

}  // namespace paceline::sim
