// SPDX-License-Identifier: Apache-2.0
// Gang: what follows when a rank fails.
#include <algorithm>
#include <utility>

#include "launcher/rendezvous/gang.hpp"

namespace paceline::rendezvous {

using failure::Action;

std::string describe(const Culprit& culprit) {
  const Failure& failure = culprit.failure;
  std::string text = "rank " + std::to_string(culprit.rank) + " on " + culprit.pod_name;
  if (failure.reason == "NotExecutable")
    return text + " could not be started" +
           (failure.last_lines.empty() ? "" : ": " + failure.last_lines.back());
  if (failure.oom) return text + " ran out of memory (OOM killed)";
  if (failure.reason == "Hang") return text + " hung";
  text += failure.signal ? " was killed by signal " + std::to_string(*failure.signal)
                         : " exited with code " + std::to_string(failure.exit_code.value_or(-1));
  return failure.cause == Cause::kPeer
             ? text + " after it had lost a connection, and no other rank has told a cause"
             : text;
}

void Gang::weigh_failure(const Member& member, const Failed& failed, SteadyTime now) {
  const int node_rank = member.hello.node.node_rank;
  const Node& node = table_.nodes[static_cast<std::size_t>(node_rank)];
  if (failed.failure.local_rank >= node.processes) return;
  if (node.kind == contract::RoleKind::kEvaluator && !decision_on(node, failed.failure)) return;
  Failure failure = failed.failure;
  // In a job with one rank and no server the lost connection was to something else.
  if (table_.world_size == 1 && config_.node_count == 1)
    failure.cause = std::min(failure.cause, Cause::kOwn);
  const std::pair order{failure.cause, now - failure.ago};
  // Each member orders its own failures by one clock. Between members, the order includes the delay
  // of the messages.
  const bool others = collecting_failures_ || stop_at_;
  if (others && blame_->culprit.node_rank != node_rank && blame_->order <= order) return;
  blame_ = Blame{{node.first_rank + failure.local_rank, node_rank, node.pod_name, failed.attempt,
                  std::move(failure)},
                 order};
}

std::optional<failure::Decision> Gang::decision_on(const Node& node, const Failure& failure) const {
  return failure::decide(config_.rules,
                         {.role = node.role,
                          .evaluator = node.kind == contract::RoleKind::kEvaluator,
                          .exit_code = failure.exit_code,
                          .signal = failure.signal,
                          .reasons = {failure.reason, failure.oom ? "OOMKilled" : ""}});
}

std::optional<failure::Decision> Gang::decision_on(const Culprit& culprit) const {
  return decision_on(table_.nodes[static_cast<std::size_t>(culprit.node_rank)], culprit.failure);
}

void Gang::failed(Member& member, const Failed& failed, SteadyTime now) {
  const Node& node = table_.nodes[static_cast<std::size_t>(member.hello.node.node_rank)];
  if (failed.failure.local_rank >= node.processes) return;
  const auto decision = decision_on(node, failed.failure);
  if (node.kind == contract::RoleKind::kEvaluator && !decision) {
    if (std::exchange(member.failed, true)) return;
    const Culprit ended{node.first_rank + failed.failure.local_rank, node.node_rank, node.pod_name,
                        failed.attempt, failed.failure};
    return log(describe(ended) +
               ": it is an evaluator, so the job goes on without it until the next attempt");
  }
  if (ends_save(member, failed, now)) return;
  if (member.start_alone_at) {
    // It is stopped for its failure already, and tells the one that was nearest to the cause.
    if (blame_->culprit.node_rank == node.node_rank) weigh_failure(member, failed, now);
    return;
  }
  weigh_failure(member, failed, now);
  if (failed.failure.reason == "NotExecutable" && !decision)
    return finish(Verdict::kFailed, describe(blame_->culprit));
  const bool concerns_all =
      decision && decision->action != Action::kRestartRank && decision->action != Action::kIgnore;
  const bool affordable =
      restarts_ < config_.max_restarts || !costs_a_restart(member, blame_->culprit, now);
  if (fails_alone(node.kind) && !concerns_all && !stop_at_ && affordable)
    return fail_alone(member, now);
  if (blame_->culprit.failure.cause != Cause::kPeer) return stop_for_failure(now);
  if (!stop_at_) stop_at_ = now + kPeerFailureGrace;
}

void Gang::stop_for_failure(SteadyTime now) {
  stop_at_.reset();
  collecting_failures_ = true;
  restart(now + std::chrono::duration_cast<SteadyTime::duration>(config_.backoff));
}

Gang::Judged Gang::judge_culprit() {
  Culprit& culprit = blame_->culprit;
  const auto decision = decision_on(culprit);
  culprit.rule = decision ? decision->text : "";
  return {decision ? decision->action : Action::kRestartGang,
          describe(culprit) + (decision ? ": " + decision->text : "")};
}

SteadyTime::duration Gang::pause_of_ignored() {
  // No budget ends a job whose every attempt fails in the same way, so the pauses grow.
  const int before = ignored_++;
  return std::chrono::seconds(before < 2 ? 0 : 1 << std::min(before - 2, 6));
}

void Gang::conclude_failure(SteadyTime now) {
  if (!collecting_failures_ || stopping_members_ > 0) return;
  collecting_failures_ = false;
  const auto [action, what] = judge_culprit();
  const auto fail = [&](const std::string& message) {
    attempt_ = stopping_;
    finish(Verdict::kFailed, message);
  };
  switch (action) {
    case Action::kFailJob: return fail(what);
    case Action::kReplaceNode: return replace_node(what, now);
    case Action::kIgnore:
      not_before_ = std::max(not_before_, now + pause_of_ignored());
      return log(what + ": no restart is spent, the gang restarts in place");
    case Action::kRestartRank:
    case Action::kRestartGang: break;
  }
  const std::string most = std::to_string(config_.max_restarts);
  if (restarts_ >= config_.max_restarts)
    return fail(what + "; all " + most + " restarts of failurePolicy.maxRestarts are spent");
  ++restarts_;
  log(what + ": restart " + std::to_string(restarts_) + " of " + most +
      ", the gang restarts in place");
}

void Gang::replace_node(const std::string& why, SteadyTime now) {
  const int node_rank = blame_->culprit.node_rank;
  const auto& member = members_[static_cast<std::size_t>(node_rank)];
  // Lost meanwhile: its replacement is on the way, or a spare has its place.
  if (!member || member->hello.node.pod_name != blame_->culprit.pod_name) return;
  send(member->connection, Stop{stopping_, why});
  actions_.emplace_back(CloseConnection{member->connection});
  lose_member(node_rank, "leaves its node; the gang waits for its replacement", now);
}

void Gang::restart(SteadyTime not_before) {
  stopping_ = attempt_;
  attempt_ = std::max(attempt_ + 1, next_attempt_);
  phase_ = GangPhase::kRestarting;
  not_before_ = not_before;
  burst_at_.reset();
  saving_.reset();
  std::vector<ConnectionId> to;
  for (auto& member : placed()) {
    if (!member) continue;
    member->stop_alone_at.reset();
    member->start_alone_at.reset();
    if (!member->alive) continue;
    set(*member, &Member::stop_requested, stopping_members_, true);
    to.push_back(member->connection);
  }
  send_all(std::move(to), Stop{stopping_});
}

}  // namespace paceline::rendezvous
