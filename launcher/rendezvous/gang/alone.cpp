// SPDX-License-Identifier: Apache-2.0
// Gang: a member that stops and starts while the others go on.
#include <algorithm>
#include <utility>

#include "launcher/rendezvous/gang.hpp"

namespace paceline::rendezvous {

bool Gang::fails_alone(contract::RoleKind kind) const {
  return contract::fails_alone(kind, has_servers_ && !config_.workers_together, has_scheduler_);
}

bool Gang::costs_a_restart(const Member& member, const Culprit& culprit, SteadyTime now) const {
  const auto decision = decision_on(culprit);
  if (decision && decision->action == failure::Action::kIgnore) return false;
  return !burst_at_ || now - *burst_at_ >= kOneCause || member.burst == burst_;
}

void Gang::fail_alone(Member& member, SteadyTime now) {
  member.blame = blame_;
  if (blame_->culprit.failure.cause != Cause::kPeer) return stop_alone(member, now);
  // The peer may be a server, whose failure stops the gang.
  if (!member.stop_alone_at) member.stop_alone_at = now + kPeerFailureGrace;
}

void Gang::stop_alone(Member& member, SteadyTime now) {
  member.stop_alone_at.reset();
  if (costs_a_restart(member, member.blame->culprit, now)) {
    ++burst_;
    ++restarts_;
  }
  member.burst = burst_;
  burst_at_ = now;
  blame_ = member.blame;  // other members may have failed meanwhile
  const Judged judged = judge_culprit();
  const bool ignored = judged.action == failure::Action::kIgnore;
  const auto backoff = std::chrono::duration_cast<SteadyTime::duration>(config_.backoff);
  member.start_alone_at = now + (ignored ? std::max(backoff, pause_of_ignored()) : backoff);
  log(judged.what +
      (ignored ? ": no restart is spent"
               : ": restart " + std::to_string(restarts_) + " of " +
                     std::to_string(config_.max_restarts)) +
      ", its replica restarts and the others go on");
  send(member.connection, Stop{attempt_});
  forget_in_save(member.connection, now);
}

/// The place of a member that was lost is taken again while the gang runs.
void Gang::join_alone(Member& member, SteadyTime now) {
  const Node& own = member.hello.node;
  Node& row = table_.nodes[static_cast<std::size_t>(own.node_rank)];
  if (row.processes != own.processes || row.kind != own.kind) {
    log("node rank " + std::to_string(own.node_rank) +
        " has come back with other processes: the gang restarts");
    return restart(now);
  }
  const int first_rank = row.first_rank;
  row = own;
  row.first_rank = first_rank;
  if (first_rank == 0) table_.master_address = own.address;
  ++table_version_;
  start_alone(member);
}

void Gang::start_alone(Member& member) {
  member.start_alone_at.reset();
  member.failed = false;
  set(member, &Member::alive, alive_, true);
  send(member.connection, Start{attempt_, restarts_, "", stage_, last_stage_});
  actions_.emplace_back(SendTable{{member.connection}});
}

void Gang::tick_alone(Member& member, SteadyTime now) {
  // If a member that does not fail alone has failed too, the gang is about to stop.
  if (member.stop_alone_at && now >= *member.stop_alone_at && !stop_at_) {
    if (restarts_ < config_.max_restarts || !costs_a_restart(member, member.blame->culprit, now))
      return stop_alone(member, now);
    blame_ = member.blame;
    return stop_for_failure(now);
  }
  if (member.start_alone_at && !member.alive && now >= *member.start_alone_at) start_alone(member);
}

}  // namespace paceline::rendezvous
