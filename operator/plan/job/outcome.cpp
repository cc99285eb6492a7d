// SPDX-License-Identifier: Apache-2.0
#include "operator/plan/job/outcome.hpp"

#include <algorithm>
#include <array>

#include "common/contract/labels.hpp"

namespace paceline::plan {
namespace {

using observe::TrainerState;

Judgement judge_end(const observe::PodView& pod, const observe::GangMember& gang) {
  Judgement end;
  end.report = status::read_report(gang.termination_message);
  const std::string verdict = end.report ? end.report->verdict : "";
  const std::string where = "pod " + pod.meta.name;
  const bool exited = gang.trainer == TrainerState::kTerminated;
  if (exited && gang.exit_code == contract::kExitOk) {
    end.outcome = Outcome::kSucceeded;
  } else if (verdict == "Failed" || (exited && gang.exit_code == contract::kExitJobFailed)) {
    end.outcome = Outcome::kJobFailed;
    end.message = end.report ? end.report->message : "";
  } else if (verdict == "PreflightFailed" ||
             (exited && gang.exit_code == contract::kExitPreflight)) {
    end.outcome = Outcome::kUnfit;
    end.kind = "PreflightFailed";
    end.message = end.report ? end.report->message : where + " lacks what the job requires of it";
  } else if (verdict == "ReplaceNode" || (exited && gang.exit_code == contract::kExitReplaceNode)) {
    end.outcome = Outcome::kLost;
    end.kind = "ReplaceNode";
    end.message = end.report ? end.report->message : where + " is to be replaced elsewhere";
  } else if (verdict == "OtherRelease") {
    end.outcome = Outcome::kMixed;
    end.kind = "RuntimeChanged";
    end.message = end.report->message;
  } else if (verdict == "BadContract" || (exited && gang.exit_code == contract::kExitBadContract)) {
    end.outcome = Outcome::kBadContract;
    end.message = end.report ? end.report->message : where + " could not start its command";
  } else if (gang.over_limit) {
    end.outcome = Outcome::kKilled;
    end.kind = "Evicted";
    end.message = where + " was evicted for a limit of its own: " + gang.message;
  } else if (verdict == "Terminated" || gang.disrupted || pod.deleting ||
             (exited && gang.exit_code == contract::kExitTerminated)) {
    end.outcome = Outcome::kLost;
    end.kind = gang.disrupted && !gang.reason.empty() ? gang.reason : "Terminated";
    end.message = where + " was stopped from outside (" + end.kind + ")";
  } else if (verdict == "RendezvousTimeout" ||
             (exited && gang.exit_code == contract::kExitRendezvous)) {
    end.outcome = Outcome::kKilled;
    end.kind = "RendezvousTimeout";
    end.message = end.report && !end.report->message.empty()
                      ? end.report->message
                      : where + ": the gang did not gather in time";
  } else {
    end.outcome = Outcome::kKilled;
    end.kind = gang.reason == "OOMKilled" ? "OOMKilled" : exited ? "ContainerKilled" : "PodFailed";
    end.message = where +
                  (exited ? " ended with exit code " + std::to_string(gang.exit_code)
                          : std::string(" failed before its trainer ran")) +
                  (gang.reason.empty() ? "" : " (" + gang.reason + ")") +
                  (gang.message.empty() ? "" : ": " + gang.message);
  }
  return end;
}

}  // namespace

bool is_blocked(const Judgement& judgement) {
  constexpr std::array<std::string_view, 8> kReasons{
      "ErrImagePull",         "ImagePullBackOff",          "InvalidImageName",
      "ErrImageNeverPull",    "ImageInspectError",         "RegistryUnavailable",
      "CreateContainerError", "CreateContainerConfigError"};
  return judgement.outcome == Outcome::kStarting &&
         std::ranges::find(kReasons, judgement.kind) != kReasons.end();
}

bool is_live(const observe::PodView& pod) {
  // A container that ended does not run again (restartPolicy Never), even while sidecars run.
  return !pod.over() && !(pod.gang && pod.gang->trainer == TrainerState::kTerminated);
}

Judgement judge(const observe::PodView* pod) {
  if (pod == nullptr || !pod->gang) return {Outcome::kAbsent, "Deleted", "", std::nullopt};
  const observe::GangMember& gang = *pod->gang;
  if (!is_live(*pod)) return judge_end(*pod, gang);
  Judgement judgement;
  if (pod->deleting) {
    judgement.outcome = Outcome::kStopping;
    judgement.message = "pod " + pod->meta.name + " is stopping";
  } else if (gang.gated) {
    judgement.outcome = Outcome::kGated;
  } else if (gang.trainer == TrainerState::kRunning) {
    judgement.outcome = Outcome::kRunning;
  } else {
    judgement.outcome = Outcome::kStarting;
    judgement.kind = gang.reason;
    judgement.message = gang.reason.empty() ? ""
                                            : "pod " + pod->meta.name + ": " + gang.reason +
                                                  (gang.message.empty() ? "" : ": " + gang.message);
  }
  return judgement;
}

}  // namespace paceline::plan
