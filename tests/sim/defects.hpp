// SPDX-License-Identifier: Apache-2.0
// Defects: mistakes that operators make, seeded on purpose to prove that the laws notice them. A
// defect sits between the real controller and the cluster: it changes what the controller sees, or
// what becomes of what it asks for. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/kube/api/resource.hpp"

namespace paceline::sim {

enum class Defect {
  kNone,
  kNoUidPrecondition,        // deletes by name
  kOpensGatesAtOnce,         // each gate as soon as its pod is there
  kTerminatingCountsAsGone,  // the successor comes before the predecessor has ended
  kForgetsTheQuota,
  kLosesStatusWrites,  // acts on what was never put on record
  kStartsOver,         // a new leader knows nothing of what was
  kIgnoresTheBudget,
  kCleansEverything,  // cleanPodPolicy read as All
  kWritesForEver,     // a field that is never the same twice
  kAdoptsByLabel,     // labels taken for ownership
  kAlwaysForces,
  kLeavesPodsBehind,  // deletions that never reach the server
  kSeesTwiceTheRoom,
  kOverwritesStatus,  // without the resourceVersion it was planned on
  kMakesOrphans,      // no owner reference
  kSharesOwnership,   // a second owner that outlives the job
  kStaysSuspended,    // never sees that a job may go on
  kStutters,          // every status many times
};

/// An object as the defective controller sees it; nothing where it does not see it at all.
std::optional<std::string> seen_through(Defect defect, const kube::Resource& resource,
                                        const std::string& object);

/// A body that the controller sends, as it leaves.
std::string sent_through(Defect defect, const kube::Resource& resource, const std::string& body);

}  // namespace paceline::sim
