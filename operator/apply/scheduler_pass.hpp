// SPDX-License-Identifier: Apache-2.0
// SchedulerPass: one pass of the scheduler over all jobs. It computes what is free, calls
// plan::schedule, and stores the answers in the jobs' memories. A placement counts as taken from
// the moment it is given, whether its pods exist yet or not.
//
// Used by one thread at a time. It holds the controller's mutex except while it computes, and
// refers to a Snapshot taken before. Nothing here calls the API. If reading one job throws, only
// that job waits, with the reason InternalError.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "operator/apply/controller.hpp"
#include "operator/apply/job_state.hpp"

namespace paceline::apply {

/// The stores as they are now. Reading them needs no lock of the controller.
struct Snapshot {
  explicit Snapshot(const Stores& stores);
  std::uint64_t pods_version;  // `pods` are at least as new as this
  std::vector<std::shared_ptr<const observe::NodeView>> nodes;  // by name
  std::vector<std::shared_ptr<const observe::PodView>> pods;
  std::vector<std::shared_ptr<const observe::QuotaView>> quotas;
  std::vector<std::shared_ptr<const observe::JobView>> jobs;
  std::vector<std::shared_ptr<const observe::FabricView>> fabrics;
  std::vector<plan::Domains> domains;  // as domains_by_topologies has them for `nodes`
};

class Controller::SchedulerPass {
 public:
  SchedulerPass(Controller& controller, const Snapshot& snapshot);
  /// The newest version of a pod that was written for a job that is gone, or is being deleted.
  std::uint64_t orphans_version() const;
  /// Returns the keys of jobs whose answer changed. `lock` holds the controller's mutex; it is free
  /// while the scheduler computes, so that no reconciliation waits for that.
  std::vector<std::string> run(std::unique_lock<std::mutex>& lock);

 private:
  /// Reads pods that belong to no job as used room, and sorts the pods of jobs by owner.
  void read_pods(const Snapshot& snapshot);
  void read_placeholder(const observe::PodView& pod);
  void read_jobs(const Snapshot& snapshot);
  /// Runs `work` for a job that has not failed in this pass. An exception ends this job's part of
  /// the pass only.
  template <typename Work>
  void contain(const observe::JobView& job, Work work);
  /// Counts what a job holds: its pods, and its placements whose pods do not exist yet.
  void charge(const observe::JobView& job);
  /// Of a job that another scheduler binds.
  void charge_by_other(const observe::JobView& job, JobState& state);
  /// The node of each node rank: the recorded one, or the one found for its replacement.
  std::vector<std::string> slots_of(const observe::JobView& job, const JobState& state) const;
  /// The pod in each of a job's slots, or null. Pods outside their slots are added to the gang.
  std::vector<const observe::PodView*> fill_slots(const std::string& uid,
                                                  const std::vector<std::string>& slots,
                                                  std::size_t ranks, plan::RunningGang& gang) const;
  /// Terminating pods of deleted jobs use room until they have ended.
  void charge_orphans();
  /// Replacements for running gangs come before waiting gangs.
  void seat_replacements();
  void seat(const observe::JobView& job, JobState& state, int rank);
  const plan::Topology& topology();
  /// Where the pods of a gang on these nodes are, for people.
  std::string describe(const std::vector<std::string>& nodes);
  void queue(const observe::JobView& job);
  /// Counts the room that was found for more pods of the job, unless it is gone.
  void charge_growth(const observe::JobView& job, JobState& state,
                     const std::vector<plan::Need>& needs, plan::RunningGang& gang);
  /// Why a node of the job would not take its pods again, which a resize recreates; empty: all do.
  std::string stays_small(const observe::JobView& job, const std::vector<plan::Need>& needs) const;
  /// Asks for room for more pods of a running job.
  void want_growth(const observe::JobView& job, int pods);
  /// What placeholders of the job hold for pods with these needs, whose ranks count from `first`.
  std::vector<plan::Held> held_by(const observe::JobView& job, int first,
                                  const std::vector<plan::Need>& needs) const;
  /// Keeps whether more nodes would help. True if that is news.
  static bool note_grow(plan::Memory& memory, const std::string& uid,
                        plan::SchedulerOutput& output);
  void take_answers(plan::SchedulerOutput output);
  void take_growth(plan::SchedulerOutput output);
  void take(const std::string& node, const observe::Resources& amount);

  Controller& controller_;
  plan::SchedulerInput input_;
  std::optional<plan::Topology> topology_;  // of the input's rooms; made when a replica is replaced
  std::unordered_map<std::string, std::size_t> room_of_;
  // by UID of the job
  std::unordered_map<std::string, std::vector<const observe::PodView*>> pods_of_;
  std::unordered_map<std::string, std::set<int>> unplaced_of_;  // ranks of pods without a place
  std::unordered_map<std::string, std::vector<const observe::PodView*>> placeholders_of_;
  std::map<std::string, JobPtr> jobs_;  // ordered by UID: the same input gives the same pass
  bool uncertain_ = false;        // a placed gang's needs are not known yet: place no other gang
  std::set<std::string> failed_;  // UIDs of jobs whose data threw
  std::vector<std::string> wake_;
};

}  // namespace paceline::apply
