// SPDX-License-Identifier: Apache-2.0
// Defects: typical mistakes of operators, seeded on purpose to prove that the laws notice them. A
// defect sits between the real controller and the cluster. It changes what the controller sees, or
// what its requests do. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/kube/api/resource.hpp"

namespace paceline::sim {

enum class Defect {
  kNone,
  kNoUidPrecondition,        // deletes by name
  kOpensGatesAtOnce,         // opens each gate as soon as its pod exists
  kTerminatingCountsAsGone,  // creates the successor before the predecessor has ended
  kForgetsTheQuota,
  kLosesStatusWrites,  // acts on a status that was never written
  kStartsOver,         // a new leader ignores the recorded status
  kIgnoresTheBudget,
  kCleansEverything,  // treats cleanPodPolicy as All
  kWritesForEver,     // writes a field that differs every time
  kAdoptsByLabel,     // takes labels for ownership
  kAlwaysForces,
  kLeavesPodsBehind,  // its deletions never reach the server
  kSeesTwiceTheRoom,
  kOverwritesStatus,  // writes without the resourceVersion that it planned on
  kMakesOrphans,      // sets no owner reference
  kSharesOwnership,   // sets a second owner that outlives the job
  kStaysSuspended,    // never sees that a job was resumed
  kStutters,          // writes every status many times
  kIgnoresTaints,
  kIgnoresForeignPods,
  kIgnoresPorts,      // does not see which ports of its node a pod has
  kIgnoresTheLevel,   // places a job that requires one leaf as if it did not
  kIgnoresAdmission,  // plans with the template, not with the admitted pod
  kForgetsThePlacedSpec,
  kForgetsTheTime,     // does not see what the job's time was used for
  kForgetsSuccess,     // takes a success for a loss
  kRetriesRefusals,    // tries a refused pod again, instead of taking back its set
  kBlamesEvictions,    // takes an eviction for a failure of the job
  kForgetsTheRules,    // does not see failurePolicy.rules
  kForgivesKills,      // takes a killed container for one that was stopped from outside
  kStopsAllForOne,     // takes every job with parameter servers for one of TensorFlow
  kMissesImages,       // does not see why a container waits
  kForgetsTheBounds,   // does not see how few workers an elastic job may have
  kTakesPartsForAll,   // does not see that Kueue has admitted a part of a job
  kNeverRunsSmaller,   // takes the wanted number of workers for the smallest one
  kHearsOfNoRecovery,  // believes that a gang which lost a pod has not started again
  kOneJobStopsAll,     // schedules nothing while one job is invalid
  kWaitsForKeptPods,   // takes a pod that ended, and that a finalizer keeps, for one that ends
  kMissesCordons,
  kTakesCandidatesForMarks,  // takes a node that may go one day for one that goes
  kTakesMarksForLosses,      // believes that pods on a cordoned node are evicted
  kRepeatsWarnings,
  kForgetsWarnings,        // launchers that save again each time they are told
  kGoesByLabels,           // takes a pod without its labels for one of nobody
  kTakesShrinkingForLoss,  // believes that pods are lost on a node that has nothing left to offer
  kMissesWithdrawals,      // does not see that a Workload was deleted
  kInsists,                // asks for what it may not do again at once
  kHidesRefusals,          // does not say what it may not do
  kLosesCheckpoints,       // ranks that train from step 0 in each attempt
};

/// An object as the defective controller sees it; nullopt if it does not see the object.
std::optional<std::string> seen_through(Defect defect, const kube::Resource& resource,
                                        const std::string& object);

/// A request body as it leaves the defective controller.
std::string sent_through(Defect defect, const kube::Resource& resource, const std::string& body);

}  // namespace paceline::sim
