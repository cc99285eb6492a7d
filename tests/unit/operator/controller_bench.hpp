// SPDX-License-Identifier: Apache-2.0
// ControllerBench: the operator's controller on an API server in memory, with a scheduler, kubelets
// and a quota controller that act at once. Nothing fails here; tests/sim covers failures.
// Single-threaded; the clock moves when told.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/kube/control/work_queue.hpp"
#include "common/kube/fake/cluster.hpp"
#include "operator/apply/controller.hpp"
#include "operator/service/job_events.hpp"

namespace paceline::apply {

/// What the pod's launcher is told: the variable PACELINE_`name`; "" if it is not set.
std::string setting_of(const nlohmann::json& pod, const std::string& name);

class ControllerBench {
 public:
  explicit ControllerBench(MarkSettings marks = {});
  ~ControllerBench();

  void add_node(const std::string& name, int cpu,
                const nlohmann::json& labels = nlohmann::json::object());
  /// `spec` is merged into the spec of a job with one role `w` of two pods with one CPU each.
  void add_job(const std::string& name, const nlohmann::json& spec = nlohmann::json::object());
  void create(const kube::Resource& resource, const std::string& ns, const nlohmann::json& object);
  void remove_job(const std::string& name);
  void patch_job(const std::string& name, const nlohmann::json& patch);
  /// Runs until nothing changes.
  void settle();
  void advance(std::chrono::nanoseconds by);
  void restart_operator();
  /// With another way in which jobs ask for nodes, if they say none themselves.
  void restart_operator(api::Provision provision);
  /// A newer operator takes over, which brings another runtime.
  void upgrade_operator(const std::string& runtime_image);
  /// The pod's trainer runs.
  void start(const std::string& pod);
  /// Every trainer of the job exits 0.
  void finish(const std::string& job);

  nlohmann::json job(const std::string& name) const;   // null: none
  nlohmann::json node(const std::string& name) const;  // null: none
  nlohmann::json condition(const std::string& job, const std::string& type) const;
  std::vector<nlohmann::json> pods(const std::string& job) const;
  std::vector<nlohmann::json> placeholders(const std::string& job) const;
  std::uint64_t writes() const { return cluster_.counts().writes(); }
  WallTime now() const { return clock_.wall(); }
  kube::FakeCluster& cluster() { return cluster_; }
  Controller& controller();
  const kube::WorkQueue& queue() const;
  const Stores& stores() const;
  const Clock& clock() const { return clock_; }

  std::string summary;  // what rank 0's launcher answers; empty: nothing
  int summary_reads = 0;
  int summary_port = 0;         // of the launcher that was asked last
  bool reconciling = false;     // a worker is at work
  bool blocked_worker = false;  // a summary was read meanwhile
  bool pods_wait = false;       // bound pods do not start by themselves
  bool quota_lags = false;      // the status of quotas is not kept up to date
  bool jobs_lag = false;        // the operator sees no change of a job
  bool nodes_lag = false;       // nor of a node
  bool pods_lag = false;        // nor of a pod
  bool pods_linger = false;     // deleted pods stay terminating
  bool groups_wait = false;     // the other scheduler binds no PodGroup
  std::atomic<int> enqueued = 0;
  Warnings warned;                               // that rank 0's launcher was told of last
  std::vector<std::string> phases;               // that people were told of, in order
  std::vector<kube::EventNote> events;           // of all news, in order
  std::function<void(bool begins)> around_pass;  // called before and after a pass of the scheduler

 private:
  struct Operator;
  bool work();
  void system();
  std::string node_with(int cpu) const;
  std::vector<nlohmann::json> pods_with(const char* label, const std::string& value) const;
  void bind_placeholder(const nlohmann::json& pod);
  /// As the scheduler that the pod names: a whole PodGroup, on nodes of its own choice.
  bool bind_in_group(const nlohmann::json& pod);

  ManualClock clock_;
  Settings settings_;
  kube::FakeCluster cluster_;
  std::shared_ptr<kube::Api> api_;
  std::unique_ptr<Operator> operator_;
};

}  // namespace paceline::apply
