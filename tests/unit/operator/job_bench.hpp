// SPDX-License-Identifier: Apache-2.0
// JobBench: one job under plan_job, with a fake cluster that carries out the plan at once: pods
// appear, lose their gate, are bound, stop. Every status is written as JSON and read back, as by
// the API server. Single-threaded; the clock moves when told.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "operator/plan/job_plan.hpp"

namespace paceline::plan {

/// A pod as the bench keeps it.
struct BenchPod {
  std::string uid;
  std::string node;
  int rank = 0;
  int incarnation = 0;
  bool gated = true;
  bool deleting = false;
  bool unbound = false;  // the scheduler does not take it
  bool lingers = false;  // a deletion leaves it terminating
  bool sidecar = false;  // runs on after the trainer
  WallTime created{};
  observe::PodPhase phase = observe::PodPhase::kPending;
  observe::TrainerState trainer = observe::TrainerState::kNone;
  int exit_code = 0;
  std::string reason;
  std::string detail;   // of the reason
  std::string message;  // the launcher's
  std::vector<failure::Condition> conditions{};
};

class JobBench {
 public:
  /// `spec` is merged into the spec of a job with one role `w` of two replicas.
  explicit JobBench(const nlohmann::json& spec = nlohmann::json::object());
  JobBench(const JobBench&) = delete;
  JobBench& operator=(const JobBench&) = delete;

  /// Plans once and carries out the plan.
  Plan step();
  /// Steps until nothing changes, at most ten times; returns the last plan.
  Plan settle();
  /// Settles with the job placed and every trainer running.
  void run();

  void change_spec(const nlohmann::json& patch);
  void advance(std::chrono::nanoseconds by) { now += by; }
  /// Another process takes over, which knows only what is in the API server.
  void restart_operator() { memory = {}; }
  /// Ends the trainer and its pod.
  void end(int rank, int exit_code, const nlohmann::json& message = nullptr);
  void end_all(int exit_code, const nlohmann::json& message = nullptr);

  const api::JobStatus& status() const { return job.status; }
  BenchPod& pod(int rank);  // the newest pod of the rank
  std::vector<std::string> pod_names() const;

  observe::JobView job;
  std::map<std::string, BenchPod> pods;  // by name
  Memory memory;
  // nodes that are not simply ready
  std::map<std::string, std::shared_ptr<const observe::NodeView>> nodes;
  WallTime now{std::chrono::sys_days(std::chrono::year(2026) / 1 / 1)};
  std::set<int> no_node;  // node ranks that no node takes
  std::set<int> refused;  // node ranks whose pods the API server refuses
  int refusals = 0;
  int created = 0;
  bool job_deleted = false;
  bool gated = true;  // something may hold back a part of the gang

 private:
  void carry_out(const Plan& plan);
  std::vector<std::shared_ptr<const observe::PodView>> views() const;

  nlohmann::json document_;
};

}  // namespace paceline::plan
