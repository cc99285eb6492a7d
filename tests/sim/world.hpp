// SPDX-License-Identifier: Apache-2.0
// World: the operator's controller over an in-memory API server. Scheduler, kubelets, launchers,
// quota and garbage collection act when told. All randomness comes from one seed. Single-threaded.
//
// Caches lag, watches break, and calls fail or lose their answer. The operator crashes at any write
// or shares the cluster with its predecessor. Nodes fall silent, clocks jump, pods are deleted and
// killed. The laws are checked after every change; `broken` names the first broken law.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/kube/fake/cluster.hpp"
#include "tests/sim/faulty_api.hpp"
#include "tests/sim/job.hpp"
#include "tests/sim/kueue.hpp"
#include "tests/sim/launchers.hpp"
#include "tests/sim/stream.hpp"

namespace paceline::sim {

inline constexpr int kRounds = 120;  // of five seconds: so long may it take to come to rest

class World {
 public:
  World(std::uint64_t seed, int nodes, int cpu_per_node, Defect defect = Defect::kNone);
  ~World();

  void set_rates(const Rates& rates);
  void add_job(const JobShape& shape);
  void add_quota(int pods);
  /// Jobs that name its LocalQueue are Kueue's. Call it before the first job is added.
  void add_kueue(int pods);
  /// Creates a foreign pod that carries the labels of a job.
  void add_bystander(const std::string& job);
  /// From now on, admission adds an overhead of one CPU to every pod of a job.
  void add_overhead() { adds_overhead_ = true; }
  /// An autoscaler adds nodes for placeholders that find none, up to `most` in all.
  void add_autoscaler(int most) { most_nodes_ = most; }
  /// False for one that was created again.
  bool was_deleted(const std::string& job) const { return deleted_.contains(job); }
  /// Does one random step.
  void step();
  /// Faults have stopped: acts fairly until nothing changes. False if the cluster is not at rest
  /// within `rounds`.
  bool settle(int rounds);
  /// Users delete every job. False if an object of a job stays.
  bool clear();
  /// Delivers and reconciles everything that is due, without letting time pass.
  void drain();

  const std::optional<Broken>& broken() const { return chaos_.laws.broken(); }
  void report(Law law, std::string what) { chaos_.laws.report(law, std::move(what)); }
  const Facts& facts() const { return chaos_.laws.facts(); }
  std::string phase(const std::string& job) const;
  nlohmann::json status(const std::string& job) const;
  std::uint64_t operator_writes() const { return chaos_.writes; }
  kube::FakeCluster& cluster() { return cluster_; }
  /// Arms a crash right before or after the n-th write from now.
  void arm(int write, bool after);
  bool armed() const { return chaos_.countdown > 0; }

 private:
  struct Operator;
  void observe(const kube::FakeCluster::Sight& sight);
  void admit(const kube::Resource& resource, nlohmann::json& object) const;
  void new_leader();
  bool run_one_key(std::size_t which);
  void reconcile(std::size_t which, const std::string& key);
  std::size_t deliver(std::size_t which, std::size_t limit);
  void disturb_watch();
  void refresh();
  void user_or_fate();
  void add_node();
  void make_node(int number);
  void autoscale();
  // changes/requests.cpp
  void carry_out_late();
  void turn_rights();
  void check_rights();
  bool says_what_is_forbidden() const;
  // changes/nodes.cpp
  void change_nodes();
  void turn_label(const NodeFacts& node);
  void bring_back_node(const std::string& name);
  void restore_nodes();
  void collect_lost_pods();
  // changes/people.cpp
  void interfere();
  void recreate_some_job();
  void strip_some_pod();
  void set_limit(int pods);
  void end_foreground_deletions();
  void remove_orphans();
  void turn_profile();
  void node_fate();
  void foreign_fate();
  nlohmann::json ports_for_foreigner(const std::string& node) const;
  void edit_while_away();
  void set_taint(const std::string& node, bool tainted);
  void mark_or_unmark(const NodeFacts& node);
  void unmark(const std::string& node);
  bool rest(int rounds);
  bool is_obstructed() const;
  void evict_some_pod();
  void resize_some_job();
  void check_missing_images();
  void check_warnings();
  void round();
  std::string some_job();
  void set_ready(const std::string& node, bool ready);
  void count_quota();
  void collect_garbage();

  ManualClock clock_;
  kube::FakeCluster cluster_;
  std::shared_ptr<kube::Api> plain_;
  Chaos chaos_;
  std::unique_ptr<kube::Api> api_;
  std::array<Journal, 6> journals_;
  std::array<Journal, 4> kueue_journals_;
  bool has_kueue_ = false;
  bool profile_is_on_ = false;
  Launchers launchers_;
  Kueue kueue_;
  std::vector<std::unique_ptr<Operator>> operators_;  // the last one leads
  bool has_quota_ = false;
  bool adds_overhead_ = false;
  const int cpu_per_node_;
  int most_nodes_ = 0;
  int nodes_made_ = 0;
  int quota_used_ = -1;                           // as the quota's status says
  int quota_pods_ = 0;                            // its limit, unless somebody changes it
  std::map<std::string, std::string> documents_;  // by name of the job, as it was created
  std::set<std::string> foreground_;              // jobs that stay until their pods are gone
  bool recreated_ = false;                        // so a job that has gone may have left objects
  std::map<std::string, int> gone_nodes_;         // by name: their numbers
  std::set<std::string> deleted_;                 // jobs that a user deleted
  int edits_ = 0;
  int foreigners_ = 0;
  bool clock_jumped_ = false;
  bool trace_ = false;  // PACELINE_SIM_TRACE: every change is printed
};

}  // namespace paceline::sim
