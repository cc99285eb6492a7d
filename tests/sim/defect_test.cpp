// SPDX-License-Identifier: Apache-2.0
// Proves that the laws can fail: every seeded defect breaks the law named beside it, within a few
// schedules.
#include <gtest/gtest.h>

#include <ostream>

#include "tests/sim/schedule.hpp"

namespace paceline::sim {
namespace {

struct Case {
  const char* name;
  Defect defect;
  Law law;
  Rates rates{};
};

void PrintTo(const Case& value, std::ostream* out) { *out << value.name; }

class Defects : public testing::TestWithParam<Case> {};

TEST_P(Defects, BreakTheirLaw) {
  constexpr std::uint64_t kSchedules = 300;
  std::string others;
  for (std::uint64_t seed = 1; seed <= kSchedules; ++seed) {
    const auto broken = run_schedule(seed, GetParam().rates, GetParam().defect);
    if (broken && broken->law == GetParam().law) {
      RecordProperty("found", broken->what);
      return;
    }
    if (broken && others.size() < 2000) others += "\n" + broken->what;
  }
  FAIL() << name_of(GetParam().law) << " held for " << kSchedules
         << " schedules; other laws broke:" << others;
}

INSTANTIATE_TEST_SUITE_P(
    Simulation, Defects,
    testing::Values(
        Case{"NoUidPrecondition", Defect::kNoUidPrecondition, Law::kDeletesItsOwn},
        Case{"OpensGatesAtOnce", Defect::kOpensGatesAtOnce, Law::kGatesOpenAsASet},
        Case{"TerminatingCountsAsGone",
             Defect::kTerminatingCountsAsGone,
             Law::kOnePodPerReplica,
             {.delete_pod = 0.02}},
        Case{"ForgetsTheQuota", Defect::kForgetsTheQuota, Law::kQuota, {.fresh = true}},
        Case{"LosesStatusWrites", Defect::kLosesStatusWrites, Law::kOnRecord},
        Case{"StartsOver", Defect::kStartsOver, Law::kFinishedStaysFinished, {.restart = 0.02}},
        Case{"StartsOverAndForgetsTheAttempt",
             Defect::kStartsOver,
             Law::kCountsNeverFall,
             {.delete_pod = 0.02, .restart = 0.02}},
        Case{
            "IgnoresTheBudget", Defect::kIgnoresTheBudget, Law::kRestartBudget, {.kill_pod = 0.05}},
        Case{"CleansEverything", Defect::kCleansEverything, Law::kKeepsLogs},
        Case{"WritesForEver", Defect::kWritesForEver, Law::kComesToRest},
        Case{"AdoptsByLabel", Defect::kAdoptsByLabel, Law::kDeletesItsOwn},
        Case{"AlwaysForces", Defect::kAlwaysForces, Law::kForcesOnLostNodes, {.spec_change = 0.02}},
        Case{"LeavesPodsBehind",
             Defect::kLeavesPodsBehind,
             Law::kQueuedHoldsNothing,
             {.spec_change = 0.02}},
        Case{"LeavesPodsBehindAtTheEnd",
             Defect::kLeavesPodsBehind,
             Law::kNobodyWaits,
             {.kill_pod = 0.1}},
        Case{"SeesTwiceTheRoom", Defect::kSeesTwiceTheRoom, Law::kRoom},
        Case{"OverwritesStatus",
             Defect::kOverwritesStatus,
             Law::kFinishedStaysFinished,
             {.kill_pod = 0.05, .second_leader = 0.2}},
        Case{"SharesOwnership", Defect::kSharesOwnership, Law::kNothingLeft},
        Case{"StaysSuspended", Defect::kStaysSuspended, Law::kEveryJobEnds},
        Case{"Stutters", Defect::kStutters, Law::kFewWrites},
        Case{"MakesOrphans", Defect::kMakesOrphans, Law::kOwned},
        Case{"IgnoresTaints",
             Defect::kIgnoresTaints,
             Law::kHonoursTaints,
             {.kill_pod = 0.02, .taint = 0.05}},
        Case{"IgnoresForeignPods",
             Defect::kIgnoresForeignPods,
             Law::kRoom,
             {.kill_pod = 0.02, .foreign = 0.1}},
        // A new leader has not chosen them itself.
        Case{"IgnoresPorts",
             Defect::kIgnoresPorts,
             Law::kOwnPorts,
             {.kill_pod = 0.02, .restart = 0.05}},
        Case{"IgnoresPortsOfForeignPods",
             Defect::kIgnoresForeignPods,
             Law::kOwnPorts,
             {.kill_pod = 0.02, .foreign = 0.1}},
        Case{"IgnoresTheLevel", Defect::kIgnoresTheLevel, Law::kOneLeaf, {.kill_pod = 0.02}},
        Case{"TerminatingTakesNoRoom",
             Defect::kTerminatingCountsAsGone,
             Law::kRoom,
             {.delete_job = 0.02}},
        Case{"TerminatingIsInNoGroup",
             Defect::kTerminatingCountsAsGone,
             Law::kInItsGroup,
             {.spec_change = 0.05}},
        Case{"TerminatingUsesNoQuota",
             Defect::kTerminatingCountsAsGone,
             Law::kKueueQuota,
             {.kueue = 1, .kueue_evict = 0.2}},
        Case{"TakesPartsForAll",
             Defect::kTakesPartsForAll,
             Law::kKueueQuota,
             {.kueue = 1, .elastic = 1}},
        Case{"IgnoresAdmission", Defect::kIgnoresAdmission, Law::kRoom},
        Case{"ForgetsThePlacedSpec",
             Defect::kForgetsThePlacedSpec,
             Law::kOneSpec,
             {.kill_pod = 0.05, .edit_away = 0.05}},
        Case{"ForgetsTheTime",
             Defect::kForgetsTheTime,
             Law::kOnRecord,
             {.kill_pod = 0.05, .fresh = true}},
        Case{"ForgetsSuccess",
             Defect::kForgetsSuccess,
             Law::kRunsOnce,
             {.spec_change = 0.05, .fresh = true}},
        Case{"RetriesRefusals", Defect::kRetriesRefusals, Law::kTakenBackAsASet, {.refuse = 0.1}},
        Case{
            "BlamesEvictions", Defect::kBlamesEvictions, Law::kRestartsHaveACause, {.evict = 0.05}},
        Case{"ForgetsTheRules",
             Defect::kForgetsTheRules,
             Law::kRestartsHaveACause,
             {.kill_pod = 0.05, .rules = 1}},
        Case{"ForgivesKills", Defect::kForgivesKills, Law::kFailuresCost, {.kill_pod = 0.05}},
        Case{"StopsAllForOne",
             Defect::kStopsAllForOne,
             Law::kGoesAlone,
             {.delete_pod = 0.05, .roles = 1, .fresh = true}},
        Case{"MissesImages", Defect::kMissesImages, Law::kNamesMissingImages, {.bad_image = 0.5}},
        Case{"ForgetsTheBounds",
             Defect::kForgetsTheBounds,
             Law::kWithinBounds,
             {.elastic = 1, .resize = 0.01}},
        Case{"NeverRunsSmaller",
             Defect::kNeverRunsSmaller,
             Law::kEveryJobEnds,
             {.elastic = 1, .resize = 0.01}},
        Case{"MixesSizes",
             Defect::kTerminatingCountsAsGone,
             Law::kOneSize,
             {.elastic = 1, .resize = 0.1}},
        Case{"HearsOfNoRecovery",
             Defect::kHearsOfNoRecovery,
             Law::kGoesAlone,
             {.lose_node = 0.02, .fresh = true}},
        Case{"OneJobStopsAll", Defect::kOneJobStopsAll, Law::kEveryJobEnds},
        Case{"WaitsForKeptPods",
             Defect::kWaitsForKeptPods,
             Law::kEveryJobEnds,
             {.delete_pod = 0.02, .keep = 0.5}},
        Case{"MissesCordons",
             Defect::kMissesCordons,
             Law::kWarnsInTime,
             {.mark = 0.1, .fresh = true}},
        Case{"TakesCandidatesForMarks",
             Defect::kTakesCandidatesForMarks,
             Law::kWarnsSparingly,
             {.mark = 0.1, .fresh = true}},
        Case{"TakesMarksForLosses",
             Defect::kTakesMarksForLosses,
             Law::kMarksCostNothing,
             {.mark = 0.03, .restart = 0.05}},
        Case{"TakesShrinkingForLoss",
             Defect::kTakesShrinkingForLoss,
             Law::kMarksCostNothing,
             {.restart = 0.05, .shrink = 0.03}},
        Case{"GoesByLabels", Defect::kGoesByLabels, Law::kOnePodPerReplica, {.strip = 0.1}},
        Case{"MissesWithdrawals",
             Defect::kMissesWithdrawals,
             Law::kKueueQuota,
             {.delete_pod = 0.03, .kueue = 1, .kueue_change = 0.1, .fresh = true}},
        Case{"LeavesStraysBehind",
             Defect::kLeavesPodsBehind,
             Law::kStraysGo,
             {.late = 0.2, .spec_change = 0.05}},
        Case{"Insists", Defect::kInsists, Law::kAsksSparingly, {.forbid = 0.1}},
        Case{"HidesRefusals", Defect::kHidesRefusals, Law::kNamesMissingRights, {.forbid = 0.1}},
        Case{"RepeatsWarnings",
             Defect::kRepeatsWarnings,
             Law::kWarnsSparingly,
             {.mark = 0.05, .fresh = true}},
        Case{"ForgetsWarnings", Defect::kForgetsWarnings, Law::kSavesOnce, {.mark = 0.05}},
        Case{"LosesCheckpoints",
             Defect::kLosesCheckpoints,
             Law::kCountsNeverFall,
             {.fail_rank = 0.05, .mark = 0.05}},
        Case{"ForcesInAnOutage",
             Defect::kAlwaysForces,
             Law::kNotInAnOutage,
             {.spec_change = 0.05, .outage = 0.05, .fresh = true}}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace paceline::sim
