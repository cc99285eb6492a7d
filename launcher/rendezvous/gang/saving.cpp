// SPDX-License-Identifier: Apache-2.0
// Gang: ranks save at one step before a member ends that was asked to end, or when a node may soon
// be lost (docs/designs/ending.md).
#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "launcher/rendezvous/gang.hpp"

namespace paceline::rendezvous {
namespace {

std::string seconds_text(std::chrono::duration<double> time) {
  const auto tenths = std::llround(time.count() * 10);
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace

std::optional<std::int64_t> step_to_save_at(const std::vector<std::int64_t>& reached) {
  const auto newest = std::ranges::max_element(reached);
  if (newest == reached.end() || *newest < 0) return std::nullopt;
  return *newest + 1;
}

void Gang::save(Member& member, const Save& save, SteadyTime now) {
  if (save.word == SaveWord::kAsk) return begin_save(member, now);
  const bool answers =
      save.word == (saving_ && saving_->at ? SaveWord::kSaved : SaveWord::kReached);
  if (!saving_ || !answers || saving_->awaited.erase(member.connection) == 0) return;
  if (saving_->at) {
    saving_->step = std::max(saving_->step, save.step);
    saving_->ranks += save.ranks;
    saving_->saved += save.saved;
    saving_->gone += save.gone;
  } else {
    saving_->reached.push_back(save.step);
  }
  go_on_saving(now);
}

void Gang::begin_save(const Member& member, SteadyTime now) {
  // The others do not stop with a member that fails alone, so they need not save.
  const bool ended = saving_ && saving_->ended;
  if (ended || fails_alone(member.hello.node.kind)) {
    send(member.connection,
         Save{.word = SaveWord::kEnded, .attempt = attempt_, .step = ended ? saving_->step : -1});
    return;
  }
  // The save that a warning began will do.
  if (saving_) return saving_->warned.clear();
  log(member.hello.node.pod_name + " was asked to end: the ranks save at one step first");
  hold_ranks({}, now);
}

GangActions Gang::warn(const std::vector<std::string>& nodes, SteadyTime now) {
  std::erase_if(warned_, [&](const auto& node) { return now - node.second > kWarningLapses; });
  std::vector<std::string> unheard;
  for (const std::string& node : nodes) {
    if (const auto known = warned_.find(node); known != warned_.end()) {
      known->second = now;
    } else {
      unheard.push_back(node);
    }
  }
  if (!unheard.empty() && phase_ == GangPhase::kRunning && !saving_)
    hold_ranks(std::move(unheard), now);
  return take();
}

void Gang::hold_ranks(std::vector<std::string> warned, SteadyTime now) {
  const auto all = connections();
  const bool go_on = !warned.empty();
  saving_.emplace(
      Saving{.began = now, .awaited = {all.begin(), all.end()}, .warned = std::move(warned)});
  send_all(all, Save{.word = SaveWord::kHold, .attempt = attempt_, .go_on = go_on});
}

void Gang::go_on_saving(SteadyTime now) {
  if (!saving_->awaited.empty()) return;
  if (saving_->at) return end_save(now);
  saving_->at = step_to_save_at(saving_->reached);
  if (!saving_->at) return end_save(now);
  const auto all = connections();
  saving_->awaited = {all.begin(), all.end()};
  const bool go_on = !saving_->warned.empty();
  if (go_on)
    log("the job may soon lose " + joined(saving_->warned) + ": the ranks save, and train on");
  send_all(all,
           Save{.word = SaveWord::kAt, .attempt = attempt_, .step = *saving_->at, .go_on = go_on});
}

void Gang::end_save(SteadyTime now) {
  saving_->ended = true;
  const bool go_on = !saving_->warned.empty();
  const auto [ranks, saved, step] = std::tuple(saving_->ranks, saving_->saved, saving_->step);
  if (saved > 0) {
    const std::chrono::duration<double> took = now - saving_->began;
    log("saved at step " + std::to_string(step) + " on " +
        (saved == ranks ? "all ranks"
                        : std::to_string(saved) + " of " + std::to_string(ranks) + " ranks") +
        ", in " + seconds_text(took));
    if (saved == ranks) saved_ = SavedStep{attempt_, step};
    for (const std::string& node : saving_->warned) warned_[node] = now;
  }
  if (go_on && saving_->gone > 0) {
    // A program may exit with 0 after it was asked to save, so that is not the end of its training.
    log("ranks have exited after the save: the gang restarts, and no restart is spent");
    return restart(now);
  }
  if (saved == 0 || go_on) {
    // Processes that have exited with 0 have trained to their end.
    const auto done = std::move(saving_->done);
    saving_.reset();
    for (const int node_rank : done) {
      auto& member = members_[static_cast<std::size_t>(node_rank)];
      if (member) this->done(*member);
    }
    if (finished()) return;
  }
  send_all(connections(),
           Save{.word = SaveWord::kEnded, .attempt = attempt_, .step = saved == ranks ? step : -1});
}

void Gang::forget_in_save(ConnectionId id, SteadyTime now) {
  if (saving_ && saving_->awaited.erase(id) > 0) go_on_saving(now);
}

/// A rank that fails while a member waits to end costs no restart, as after SIGTERM. If no member
/// ends, it is a failure like any other.
bool Gang::ends_save(const Member& member, const Failed& failed, SteadyTime now) {
  if (!saving_ || !saving_->warned.empty()) return false;
  const Node& node = table_.nodes[static_cast<std::size_t>(member.hello.node.node_rank)];
  log(describe({node.first_rank + failed.failure.local_rank, node.node_rank, node.pod_name,
                failed.attempt, failed.failure}) +
      " while the ranks saved: no rank waits any longer");
  restart(now);
  return true;
}

}  // namespace paceline::rendezvous
