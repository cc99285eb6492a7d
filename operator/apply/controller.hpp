// SPDX-License-Identifier: Apache-2.0
// Controller: observe → plan → write status → act, for one key at a time. Keys are "namespace/name"
// of jobs, kScheduleKey for a pass of the scheduler, and kNodeKey with a node's name for its labels
// and taint.
//
// Ownership: refers to everything in Parts, which outlives it. Thread-safe for different keys (the
// WorkQueue never hands one key to two workers). Failure: `reconcile` says when to come back; it
// never throws for what the API server does. What is kept in memory here can be lost at any moment.
//
// Three rules make a stale cache and a lost answer harmless: the status is written first and
// carries the resourceVersion it was planned on, so a stale plan ends in a conflict; a plan that
// acts without writing first asks the API server whether its job is still the newest; and a key is
// not reconciled before the cache has seen the pods that were written for it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "common/base/clock.hpp"
#include "common/kube/api/api.hpp"
#include "operator/apply/actuator.hpp"
#include "operator/apply/stores.hpp"
#include "operator/plan/scheduler.hpp"

namespace paceline::apply {

inline const std::string kScheduleKey = "!schedule";
inline const std::string kNodeKey = "!node/";

/// Reads the summary of a job from rank 0's launcher: address of the pod and the job's token in,
/// JSON out. Blocks for at most a second or two.
using SummarySource =
    std::function<Result<std::string>(const std::string& pod_ip, const std::string& token)>;

/// Called after a status write that changed the phase.
using PhaseListener = std::function<void(const api::TrainingJob& job, const api::JobStatus& before,
                                         const api::JobStatus& after)>;

struct Parts {
  kube::Api& api;
  const Clock& clock;
  Stores& stores;
  Executor& executor;
  std::function<void(const std::string& key)> enqueue;
  std::function<std::string()> new_token;
  SummarySource summaries;       // empty: telemetry is not read
  PhaseListener phase_listener;  // may be empty
};

struct Outcome {
  bool failed = false;  // try again with the key's back-off
  std::optional<std::chrono::nanoseconds> again;
};

struct Counters {
  std::uint64_t reconciles = 0;
  std::uint64_t status_writes = 0;
  std::uint64_t pods_created = 0;
  std::uint64_t pods_ungated = 0;
  std::uint64_t pods_deleted = 0;
  std::uint64_t conflicts = 0;
  std::uint64_t errors = 0;
  std::uint64_t scheduler_passes = 0;
  std::map<std::string, std::int64_t> jobs_by_phase;
};

class Controller {
 public:
  Controller(Parts parts, Settings settings);

  Outcome reconcile(const std::string& key);
  /// Wires store changes to keys. Once, before the stores are fed.
  void subscribe();
  Counters counters() const;

 private:
  struct JobState;
  class SchedulerPass;
  using JobPtr = std::shared_ptr<const observe::JobView>;

  Outcome reconcile_job(const std::string& key);
  bool marks_nodes() const;
  Outcome mark(const std::string& node);
  /// Services, Secret and dry run, before a place is taken; false when refused (then in memory).
  bool prepare(const JobPtr& job, const std::shared_ptr<JobState>& state, const plan::Plan& plan);
  /// Reads what a placement of the job goes by and nobody watches: what its volumes demand of
  /// nodes, which agents are alive. Before it asks for a place; false when refused (then in
  /// memory).
  bool look_around(const JobPtr& job, const std::shared_ptr<JobState>& state, bool queued);
  bool know_volumes(const JobPtr& job, const std::shared_ptr<JobState>& state, bool queued);
  Done look_at_agents(const api::TrainingJob& job);
  Done look_at_volumes(const JobPtr& job, const std::shared_ptr<JobState>& state);
  /// Leaves a refusal or an error in memory: the job waits before it asks for a place again.
  void put_off(JobState& state, Done done);
  Outcome carry_out(const JobPtr& job, const std::shared_ptr<JobState>& state, plan::Plan& plan);
  std::optional<Outcome> act(const JobPtr& job, const std::shared_ptr<JobState>& state,
                             const plan::Plan& plan, Done& total);
  std::expected<JobPtr, Outcome> write_status(const JobPtr& job,
                                              const std::shared_ptr<JobState>& state,
                                              const plan::Plan& plan);
  /// Whether the job that was planned on is still the newest; an error when nobody can say.
  Result<bool> confirm(const JobPtr& job, const std::shared_ptr<JobState>& state);
  void read_summary(const JobPtr& job, const std::shared_ptr<JobState>& state,
                    const std::vector<std::shared_ptr<const observe::PodView>>& pods, bool now);
  void schedule();
  void forget(const std::string& key, const std::string& uid);
  std::shared_ptr<JobState> state_of(const observe::JobView& job);
  JobPtr newest(const std::shared_ptr<const observe::JobView>& cached, const JobState& state) const;
  std::optional<plan::Waiting> priority_of(const observe::JobView& job, std::string& name,
                                           int& value) const;
  const std::vector<plan::Need>& needs_of(const observe::JobView& job, JobState& state) const;
  /// The same for a placement now: without the nodes that the job is kept from.
  std::vector<plan::Need> needs_now(const observe::JobView& job, JobState& state) const;

  Parts parts_;
  Actuator actuator_;
  // states_ and what is in them, counters_
  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<JobState>> states_;  // by UID
  std::unordered_map<std::string, std::string> uid_of_key_;
  std::map<std::string, std::set<int>> wants_node_;  // by UID: node ranks that need another node
  std::unordered_set<std::string> queued_;           // UIDs that want a place
  std::set<std::string> living_agents_;              // nodes, as last read
  std::optional<SteadyTime> agents_read_at_;         // null: no job has asked yet
  std::mutex schedule_mutex_;
  Counters counters_;
};

/// The merge patch (RFC 7386) that turns `before` into `after`.
nlohmann::json merge_diff(const nlohmann::json& before, const nlohmann::json& after);

}  // namespace paceline::apply
