// SPDX-License-Identifier: Apache-2.0
// What became of one replica, judged by its pod: the launcher's termination message first, then
// exit code and reasons. Pure.
//
//   an exit the launcher explains (success, job failed, bad contract, no rendezvous)    is what it
//   says an exit before the first step, since the pod lacks what the job requires of it     unfit:
//   the gang is placed elsewhere terminated from outside: drain, preemption, deletion, lost node
//   lost: replaced, costs no restart gone without a valid message: OOM of the container, kill -9 of
//   the launcher         killed: replaced, costs one restart
#pragma once

#include <optional>
#include <string>

#include "operator/observe/views.hpp"
#include "operator/status/training.hpp"

namespace paceline::plan {

enum class Outcome {
  kAbsent,
  kGated,
  kStarting,
  kRunning,
  kStopping,
  kSucceeded,
  kUnfit,
  kJobFailed,
  kBadContract,
  kLost,
  kKilled
};

struct Judgement {
  Outcome outcome = Outcome::kAbsent;
  // Evicted, OOMKilled, ContainerKilled, RendezvousTimeout, PreflightFailed, NodeLost, Deleted
  std::string kind;
  std::string message;  // for people
  std::optional<status::Report> report;
};

/// `pod` null: there is none.
Judgement judge(const observe::PodView* pod);

/// Whether a process of the replica may still run.
bool is_live(const observe::PodView& pod);

}  // namespace paceline::plan
