// SPDX-License-Identifier: Apache-2.0
// SchedulerPass: one pass of the scheduler over all jobs. Works out what is free, asks
// plan::schedule, and leaves the answers in the jobs' memories. A place that was given away counts
// as taken from that moment on, whether its pods exist yet or not.
//
// Lives while the controller's mutex is held, and refers to a Snapshot that was taken before.
// Nothing here calls the API or fails.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "operator/apply/controller.hpp"
#include "operator/apply/job_state.hpp"

namespace paceline::apply {

/// The stores as they are now; reading them needs no lock of the controller's.
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
  /// The keys of jobs that have news.
  std::vector<std::string> run();

 private:
  /// Who takes room without being a job of ours; pods of jobs are sorted by owner.
  void read_pods(const Snapshot& snapshot);
  void read_jobs(const Snapshot& snapshot);
  /// What a job holds: its pods, and places given away whose pods do not exist yet.
  void charge(const observe::JobView& job);
  /// Which of a job's slots have their pod; pods outside of their slots are counted by themselves.
  std::vector<bool> fill_slots(const std::string& uid, const std::vector<std::string>& slots,
                               std::size_t ranks, plan::RunningGang& gang) const;
  /// Single replicas of gangs that run come before gangs that wait.
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
