// SPDX-License-Identifier: Apache-2.0
#include "launcher/spans/life.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace paceline::spans {
namespace {

using rendezvous::GangPhase;

std::string failure_of(const rendezvous::Gang& gang) {
  const auto culprit = gang.culprit();
  return culprit ? rendezvous::describe(*culprit) : "the ranks were stopped";
}

}  // namespace

JobLife::JobLife(JobFacts job, WallTime now)
    : job_(std::move(job)),
      began_(std::min(job_.created.value_or(now), now)),
      root_(span_id(job_.uid, "job")),
      attempt_(job_.attempt) {
  if (job_.placed) {
    const WallTime placed = std::clamp(*job_.placed, began_, now);
    if (job_.created) before_.push_back(part("queued", "queued", began_, placed));
    before_.push_back(part("pod start", "pod start", placed, now));
  }
  begin("rendezvous", "rendezvous " + std::to_string(attempt_), false, now);
}

Span JobLife::part(std::string name, std::string key, WallTime begin, WallTime end) const {
  return {.name = std::move(name),
          .id = span_id(job_.uid, key),
          .parent = root_,
          .begin = begin,
          .end = end};
}

void JobLife::begin(std::string name, std::string key, bool attempt, WallTime now) {
  part_ = Part{part(std::move(name), std::move(key), now, now), attempt};
  stepped_ = false;
  checkpoints_ = 0;
  checkpoint_seconds_ = 0;
}

void JobLife::finish(const std::string& error, WallTime now, std::vector<Span>& ended) {
  if (!part_) return;
  part_->span.end = std::max(now, part_->span.begin);
  part_->span.error = error;
  ended.push_back(std::move(part_->span));
  part_.reset();
}

std::vector<Span> JobLife::follow(const rendezvous::Gang& gang, WallTime now) {
  std::vector<Span> ended = std::exchange(before_, {});
  if (phase_ == gang.phase() && attempt_ == gang.attempt()) return ended;
  const bool failed = part_ && part_->attempt && gang.phase() != GangPhase::kSucceeded;
  finish(failed ? failure_of(gang) : "", now, ended);
  phase_ = gang.phase();
  attempt_ = gang.attempt();
  const std::string number = std::to_string(attempt_);
  switch (gang.phase()) {
    case GangPhase::kGathering: begin("rendezvous", "rendezvous " + number, false, now); break;
    case GangPhase::kRestarting: begin("restart", "restart " + number, false, now); break;
    case GangPhase::kRunning:
      begin("attempt " + number, "attempt " + number, true, now);
      part_->span.attributes = {{"paceline.attempt", number},
                                {"paceline.ranks", std::to_string(gang.table().world_size)}};
      break;
    case GangPhase::kSucceeded:
    case GangPhase::kFailed: break;
  }
  return ended;
}

std::vector<Span> JobLife::look_at_ranks(const rendezvous::Gang& gang, WallTime now) {
  std::vector<Span> ended = follow(gang, now);
  if (!part_ || !part_->attempt) return ended;
  bool stepped = false;
  std::uint64_t checkpoints = 0;
  double seconds = 0;
  for (const telemetry::RankSummary& rank : gang.ranks()) {
    if (rank.use.attempt != attempt_) continue;
    stepped = stepped || rank.use.steps > 0;
    checkpoints = std::max(checkpoints, rank.use.checkpoints);
    seconds = std::max(seconds, rank.use.checkpoint);
  }
  const auto within = [&](std::string name, const std::string& key, WallTime begin) {
    Span span = part(std::move(name), part_->span.name + "/" + key, begin, now);
    span.parent = part_->span.id;
    ended.push_back(std::move(span));
  };
  if (stepped && !std::exchange(stepped_, true))
    within("first step", "first step", part_->span.begin);
  if (checkpoints > checkpoints_) {
    const auto took = std::chrono::duration_cast<WallTime::duration>(
        std::chrono::duration<double>(seconds - std::exchange(checkpoint_seconds_, seconds)));
    within("checkpoint", "checkpoint " + std::to_string(checkpoints),
           std::clamp(now - took, part_->span.begin, now));
    checkpoints_ = checkpoints;
  }
  return ended;
}

std::vector<Span> JobLife::end(const std::string& error, bool job_ends, WallTime now) {
  std::vector<Span> ended = std::exchange(before_, {});
  finish(error, now, ended);
  if (!job_ends) return ended;
  Span job = part("job " + job_.name, "job", began_, std::max(now, began_));
  job.parent = job_.parent;
  job.error = error;
  ended.push_back(std::move(job));
  return ended;
}

}  // namespace paceline::spans
