// SPDX-License-Identifier: Apache-2.0
// SchedulerPass: one pass of the scheduler over all jobs. It computes what is free, calls
// plan::schedule, and stores the answers in the jobs' memories. A placement counts as taken from
// the moment it is given, whether its pods exist yet or not.
//
// Lives while the controller's mutex is held, and refers to a Snapshot taken before. Nothing here
// calls the API or fails.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "operator/apply/controller.hpp"
#include "operator/apply/job_state.hpp"

namespace paceline::apply {

/// The stores as they are now. Reading them needs no lock of the controller.
struct Snapshot {
  explicit Snapshot(const Stores& stores);
  std::vector<std::shared_ptr<const observe::NodeView>> nodes;  // by name
  std::vector<std::shared_ptr<const observe::PodView>> pods;
  std::vector<std::shared_ptr<const observe::QuotaView>> quotas;
  std::vector<std::shared_ptr<const observe::JobView>> jobs;
  std::vector<std::shared_ptr<const observe::FabricView>> fabrics;
};

class Controller::SchedulerPass {
 public:
  SchedulerPass(Controller& controller, const Snapshot& snapshot);
  /// Returns the keys of jobs whose answer changed.
  std::vector<std::string> run();

 private:
  /// Reads pods that belong to no job as used room, and sorts the pods of jobs by owner.
  void read_pods(const Snapshot& snapshot);
  void read_jobs(const Snapshot& snapshot);
  /// Counts what a job holds: its pods, and its placements whose pods do not exist yet.
  void charge(const observe::JobView& job);
  /// Which of a job's slots have a pod. Pods outside their slots count by themselves.
  std::vector<bool> fill_slots(const std::string& uid, const std::vector<std::string>& slots,
                               std::size_t ranks, plan::RunningGang& gang) const;
  /// Replacements for running gangs come before waiting gangs.
  void seat_replacements();
  void seat(const observe::JobView& job, JobState& state, int rank);
  void queue(const observe::JobView& job);
  void ask();
  void take(const std::string& node, const observe::Resources& amount);

  Controller& controller_;
  plan::SchedulerInput input_;
  std::unordered_map<std::string, std::size_t> room_of_;
  // by UID of the job
  std::unordered_map<std::string, std::vector<const observe::PodView*>> pods_of_;
  std::map<std::string, JobPtr> jobs_;  // ordered by UID: the same input gives the same pass
  std::vector<std::string> wake_;
};

}  // namespace paceline::apply
