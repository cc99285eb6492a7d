// SPDX-License-Identifier: Apache-2.0
// What became of one replica, judged by its pod: first by the launcher's termination message, then
// by exit code and reasons. Pure.
//
// - The launcher explains its exit (success, job failed, bad contract, no rendezvous): the
// launcher's verdict.
//
// - An exit before the first step, because the pod lacks what the job requires: unfit. The gang is
// placed elsewhere.
//
// - Sent away by a failure rule, which wants the replica on another node: lost.
//
// - Refused by node rank 0's launcher, which is of another release: mixed. The gang is placed
// again.
//
// - Terminated from outside (drain, preemption, deletion, lost node): lost. The replica is replaced
// at no cost of a restart.
//
// - Evicted because it exceeded a limit of its own: killed.
//
// - Ended without a valid message (OOM of the container, kill -9 of the launcher): killed. The
// replica is replaced, which costs one restart.
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
  kMixed,
  kJobFailed,
  kBadContract,
  kLost,
  kKilled
};

struct Judgement {
  Outcome outcome = Outcome::kAbsent;
  // Evicted, OOMKilled, ContainerKilled, RendezvousTimeout, PreflightFailed, RuntimeChanged,
  // NodeLost, Deleted, ReplaceNode
  std::string kind;
  std::string message;  // shown to people
  std::optional<status::Report> report;
};

/// `pod` is null if there is none.
Judgement judge(const observe::PodView* pod);

/// Whether the pod waits for an image that cannot be pulled, or for a configuration that does not
/// exist. Its gang cannot gather, and a restart does not help.
bool is_blocked(const Judgement& judgement);

/// Whether a process of the replica may still run.
bool is_live(const observe::PodView& pod);

}  // namespace paceline::plan
