// SPDX-License-Identifier: Apache-2.0
// Controller: observes, plans, writes the status, then acts, for one key at a time. A key is
// "namespace/name" of a job, kScheduleKey for a pass of the scheduler, kNodeKey with a node's name
// for its labels and taint, or kProfileKey with a RuntimeProfile's name for its status.
//
// Ownership: everything in Parts must outlive it. Thread-safe for different keys; the WorkQueue
// never hands one key to two workers. Failure: `reconcile` returns when to come back and never
// throws because of the API server. Its memory may be lost at any moment.
//
// Three rules make a stale cache and a lost answer harmless:
//
// 1. The status is written first and carries the resourceVersion that it was planned on, so that a
//    stale plan ends in a conflict.
// 2. A plan that acts without writing first asks the API server whether its job is still the
// newest.
// 3. A key is not reconciled before the cache has seen the pods that were written for it.
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
#include "operator/apply/agents.hpp"
#include "operator/apply/durations.hpp"
#include "operator/apply/growth/node_requests.hpp"
#include "operator/apply/host_network/host_ports.hpp"
#include "operator/apply/job_state.hpp"
#include "operator/apply/stores.hpp"
#include "operator/apply/summary_poller.hpp"
#include "operator/plan/job/plan.hpp"

namespace paceline::apply {

inline const std::string kScheduleKey = "!schedule";
inline const std::string kNodeKey = "!node/";
inline const std::string kProfileKey = "!profile/";

/// What people are told about a job.
enum class News : std::uint8_t {
  kPhase,    // it is in another phase
  kReason,   // it waits for another reason
  kEffects,  // the effects of its acceleration are known for the first time
};

/// Called once for each news of a job, however its status came to be written.
using NewsListener =
    std::function<void(const api::TrainingJob& job, const api::JobStatus& status, News news)>;

struct Parts {
  kube::Api& api;
  const Clock& clock;
  Stores& stores;
  Executor& executor;
  std::function<void(const std::string& key)> enqueue;
  TokenSource tokens;
  SummarySource summaries;  // empty: telemetry is not read
  NewsListener listener;    // may be empty
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
  std::uint64_t placeholders_created = 0;
  std::uint64_t pods_deleted = 0;
  std::uint64_t conflicts = 0;
  std::uint64_t errors = 0;
  std::uint64_t internal_errors = 0;
  std::uint64_t scheduler_passes = 0;
  std::uint64_t resizes = 0;  // of running elastic jobs
  WorkTimes pass_times;
  WorkTimes reconcile_times;
  WaitTimes wait_times;  // from a job's creation to its first placement
  std::map<std::string, std::int64_t> jobs_by_phase;
};

/// Objects of one kind that ask for nodes, which nobody has answered.
struct Unanswered {
  int times = 0;       // since one was answered
  SteadyTime until{};  // jobs ask in other ways, unless the operator's settings name this one
};

struct JobFacts;  // facts/job_facts.hpp

class Controller {
 public:
  Controller(Parts parts, Settings settings);

  Outcome reconcile(const std::string& key);
  /// Connects store changes to keys. Call it once, before the stores are fed.
  void subscribe();
  Counters counters() const;
  /// What is known of the job of that key; nullopt: there is none. Calls nothing but the caches.
  std::optional<JobFacts> facts(const std::string& key) const;
  /// Reads the summaries of running jobs. The operator runs it on threads of its own; a test polls.
  SummaryPoller& summaries() { return poller_; }
  /// Counts and logs an exception that a reconciliation threw: a bug, which must not stop others.
  /// The job of that key is set aside until a later try succeeds.
  void contain(const std::string& key, const std::exception& error);

 private:
  class SchedulerPass;

  Outcome reconcile_job(const std::string& key);
  bool marks_nodes() const;
  Outcome mark(const std::string& node);
  /// Writes whether jobs can use the RuntimeProfile into its status.
  Outcome judge_profile(const std::string& name);
  /// Services and Secret of the job, created if they do not exist. `again`: also if they were,
  /// since somebody may have deleted them; looked at after a minute, and then ever less often.
  std::expected<Surroundings, Done> surround(const JobPtr& job, JobState& state, bool again);
  /// Creates Services and Secret, and tries the pods with a dry run, once for a spec.
  Done check_pods(const JobPtr& job, const std::shared_ptr<JobState>& state,
                  const plan::Plan& plan);
  std::vector<plan::Need> known_needs(const observe::JobView& job, JobState& state) const;
  /// For a gang that an earlier operator placed: asks what its pods need if some are missing, since
  /// the scheduler places no other gang before, or if it shrinks. True if it has asked.
  bool learn_needs(const JobPtr& job, const std::shared_ptr<JobState>& state,
                   const plan::Plan& plan);
  /// By role; empty: not known, or of no use for the job. mutex_ is held.
  std::vector<plan::Constraints> admitted_constraints(const observe::JobView& job,
                                                      const JobState& state) const;
  /// Before a placement is taken: checks pods and volumes. False if refused; the refusal is then in
  /// memory.
  bool prepare(const JobPtr& job, const std::shared_ptr<JobState>& state, const plan::Plan& plan);
  /// Before a placement is asked for: reads what nothing watches, namely which nodes the job's
  /// volumes allow, which agents are alive, and what the API server makes of the pods. False if
  /// refused; the refusal is then in memory.
  bool look_around(const JobPtr& job, const std::shared_ptr<JobState>& state,
                   const plan::Plan& plan);
  /// True if the API server may refuse a part of the gang for a quota, or another controller holds
  /// its pods with a gate. Only then are gates worth their writes.
  bool may_be_held_back(const observe::JobView& job, const JobState& state) const;
  /// False, and the placement is dropped, if one of its nodes was tainted or cordoned meanwhile, or
  /// a volume there was taken: it may have waited for quota or placeholders.
  bool nodes_still_take(const observe::JobView& job, JobState& state);
  /// How long to wait with a placement, since the quota's status counts pods that the scheduler
  /// counts as gone: placeholders of jobs that come later. nullopt: not at all.
  std::optional<std::chrono::nanoseconds> quota_pause(const observe::JobView& job,
                                                      JobState& state) const;
  bool know_volumes(const JobPtr& job, const std::shared_ptr<JobState>& state, bool queued);
  Done look_at_agents(const api::TrainingJob& job);
  Done look_at_volumes(const JobPtr& job, const std::shared_ptr<JobState>& state);
  /// How the job asks for nodes; kDisabled: nobody would add any. mutex_ is held.
  api::Provision way_to_ask(const observe::JobView& job) const;
  /// Nobody has answered an object of that kind in time. mutex_ is held for this and the next one.
  void note_unanswered(api::Provision kind);
  /// How long until jobs may ask again by objects that nobody answered; nullopt: there are none.
  std::optional<std::chrono::nanoseconds> until_next_way() const;
  /// Asked for while a job waits or lacks replicas; reads at most once in some minutes.
  void look_for_autoscaler();
  /// Once: which jobs an earlier operator has asked for nodes by objects.
  void recall_requests();
  /// Reads what the autoscaler says of the job's object, now and then.
  void read_request(const JobPtr& job, const std::shared_ptr<JobState>& state);
  std::optional<Outcome> request_nodes(const JobPtr& job, const std::shared_ptr<JobState>& state,
                                       const plan::Plan& plan);
  std::optional<Outcome> hold_room(const JobPtr& job, const std::shared_ptr<JobState>& state,
                                   const plan::Plan& plan, Done& total);
  /// Keeps a refusal or an error in memory: the job waits before it asks for a placement again.
  void put_off(JobState& state, Done done);
  Outcome carry_out(const JobPtr& job, const std::shared_ptr<JobState>& state, plan::Plan& plan);
  /// How long to wait with a status in which only counts of pods differ; nullopt: not at all. While
  /// a large gang starts, every pod would cause a write otherwise.
  std::optional<std::chrono::nanoseconds> count_pause(const JobState& state,
                                                      const api::JobStatus& before,
                                                      const plan::Plan& plan) const;
  /// How long to wait with the first status of a job about which there is nothing to say but that
  /// it is new; nullopt: not at all. A job that finds room at once is never written as Queued.
  std::optional<std::chrono::nanoseconds> first_pause(JobState& state, const api::JobStatus& before,
                                                      const plan::Plan& plan) const;
  /// What the plan says of the size of an elastic job. True if the scheduler is to look again.
  /// mutex_ is held.
  bool note_growth(JobState& state, const plan::Plan& plan);
  std::optional<Outcome> act(const JobPtr& job, const std::shared_ptr<JobState>& state,
                             plan::Plan& plan, Done& total);
  /// Creates the PodGroup of a job that another scheduler binds. `only_try`: with dryRun=All.
  Done group(const observe::JobView& job, JobState& state, const std::string& name,
             const std::string& priority, bool only_try);
  /// Creates the PodGroup of a waiting job again if somebody deleted it. Looks once a minute.
  Done keep_group(const observe::JobView& job, JobState& state, const std::string& name);
  /// Deletes the PodGroup of a gang that has ended.
  Outcome drop_group(const JobPtr& job, JobState& state, const std::string& name);
  /// What the stores say of the job's quota in Kueue, and the priority that it is to have there.
  plan::KueueSeen ask_kueue(const observe::JobView& job) const;
  /// The levels that Kueue's Topologies name may have changed: waiting jobs may ask for others.
  void wake_for_levels();
  /// Creates, changes or deletes the job's Workload of Kueue.
  Done tell_kueue(const JobPtr& job, const plan::Plan& plan);
  std::expected<JobPtr, Outcome> write_status(const JobPtr& job,
                                              const std::shared_ptr<JobState>& state,
                                              const plan::Plan& plan);
  /// Reads the job after a write that failed: it may have been applied, lost or overtaken.
  Outcome look_after(const JobPtr& job, const std::shared_ptr<JobState>& state, const Error& error);
  /// Tells the listener what has changed since this was last called.
  void tell(JobState& state, const JobPtr& job);
  /// True if the phase is another, or why the job waits. Each reason is told again only after some
  /// minutes.
  bool is_news(JobState& state, const api::JobStatus& before, const api::JobStatus& now) const;
  /// True if the planned job is still the newest; an Error if that cannot be found out.
  Result<bool> confirm(const JobPtr& job, const std::shared_ptr<JobState>& state);
  /// Whether the API server, too, has none of these nodes. Those that it may have are remembered.
  bool are_gone(JobState& state, const std::set<std::string>& nodes);
  /// Has the poller read the summary of a job that runs or restarts, and of no other.
  void watch_summary(const JobPtr& job, const std::shared_ptr<JobState>& state,
                     const std::vector<std::shared_ptr<const observe::PodView>>& pods);
  /// False if the poller will read the summary soon and wake the job then.
  bool summary_is_fresh(const JobState& state);
  void take_summary(const std::string& uid, std::optional<status::Report> report);
  /// Of a pod of a job, whose launcher has ended.
  void take_last_words(const observe::PodView& pod);
  /// One pass of the scheduler. Returns when another one is due without an event: soon, if the
  /// cache lags too much.
  std::optional<std::chrono::nanoseconds> schedule();
  void note_internal_error(const std::string& key, const std::string& what);  // mutex_ is held
  /// The scheduler goes on as if the job asked for nothing; what it has stays charged. mutex_ is
  /// held.
  void set_aside(JobState& state);
  // mutex_ is held for both
  void note_failure(JobState& state, std::string message) const;
  void note_failure(JobState& state, const Done& done) const;
  void count_phase(JobState& state, const std::string& phase);
  void forget(const std::string& key, const std::string& uid);
  std::shared_ptr<JobState> state_of(const observe::JobView& job);
  JobPtr newest(const std::shared_ptr<const observe::JobView>& cached, const JobState& state) const;
  std::optional<plan::Waiting> priority_of(const observe::JobView& job, std::string& name,
                                           int& value) const;
  const std::vector<plan::Need>& needs_of(const observe::JobView& job, JobState& state) const;
  void learn_needs_of(const observe::JobView& job, JobState& state) const;
  /// The same for a placement now, without the nodes that the job must avoid.
  std::vector<plan::Need> needs_now(const observe::JobView& job, JobState& state) const;

  Parts parts_;
  Actuator actuator_;
  HostPorts host_ports_;
  // guards states_ and their content, and counters_
  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<JobState>> states_;  // by UID
  std::unordered_map<std::string, std::string> uid_of_key_;
  std::uint64_t orphans_version_ = 0;  // newest version of a written pod whose job is gone
  std::map<std::string, std::set<int>> wants_node_;  // by UID: node ranks that need another node
  std::map<std::string, int> wants_growth_;  // by UID: how many pods an elastic job could add
  std::unordered_set<std::string> queued_;   // UIDs of jobs that want a placement
  std::vector<std::string> order_;           // UIDs as the last pass considered them
  std::optional<WallTime> passed_at_;        // when it did
  AgentTracker agents_;
  std::set<std::string> living_agents_;       // nodes, as last read
  std::optional<SteadyTime> agents_read_at_;  // nullopt: no job has needed it yet
  NodeRequests requests_;
  Growers growers_;  // what adds nodes here, as last read
  std::optional<SteadyTime> growers_read_at_;
  std::map<api::Provision, Unanswered> unanswered_;    // by kind of object
  std::map<std::string, plan::NodeRequest> recalled_;  // by UID of the job
  bool has_recalled_ = false;
  std::mutex schedule_mutex_;
  Counters counters_;
  SummaryPoller poller_;
};

}  // namespace paceline::apply
