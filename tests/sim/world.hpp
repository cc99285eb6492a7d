// SPDX-License-Identifier: Apache-2.0
// World: the operator's controller over an in-memory API server, with a scheduler, kubelets and a garbage collector that act when told, and everything
// random drawn from one seed. Single-threaded.
//
// Caches lag (deliver moves a few changes at a time), writes fail or lose their answer, the operator crashes before or after any write, nodes go silent,
// pods are deleted and killed. `check` holds the invariants and returns what is broken.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/kube/fake/cluster.hpp"
#include "common/kube/work_queue.hpp"
#include "operator/apply/controller.hpp"

namespace paceline::sim {

/// Thrown through the controller, as a process that ends.
struct Crash {};

class CrashApi;

struct Rates {
  double crash = 0;        // per write, before or after it
  double fail = 0;         // per write: refused for the moment
  double lost = 0;         // per write: applied, the answer lost
  double kill_pod = 0;     // per step: a container is killed
  double delete_pod = 0;   // per step
  double lose_node = 0;    // per step
  double spec_change = 0;  // per step: suspend or resume
};

class World {
 public:
  World(std::uint64_t seed, int nodes, int cpu_per_node);
  ~World();

  void add_job(const std::string& name, int replicas, int cpu_per_pod, int max_restarts);
  /// One random step.
  void step(const Rates& rates);
  /// Faults have stopped: acts fairly until nothing changes any more. False when it does not come to rest within `rounds`.
  bool settle(int rounds);

  std::optional<std::string> check();
  std::string phase(const std::string& job) const;
  nlohmann::json job(const std::string& name) const;
  /// Parsed once for each version of a pod.
  std::vector<std::shared_ptr<const nlohmann::json>> pods() const;
  std::uint64_t writes() const { return cluster_.counts().writes(); }
  kube::FakeCluster& cluster() { return cluster_; }
  kube::Api& api() { return *plain_; }
  ManualClock& clock() { return clock_; }
  void restart_operator();
  /// A crash right before or after the n-th write from now.
  void arm(int write, bool after);
  bool armed() const;
  void drain_once();

 private:
  struct Operator;
  bool run_one_key();
  std::size_t deliver(std::size_t limit);
  void scheduler();
  void kubelets(bool everything);
  bool chance(double p) { return std::uniform_real_distribution<>(0, 1)(random_) < p; }
  std::size_t pick(std::size_t size) { return std::uniform_int_distribution<std::size_t>(0, size - 1)(random_); }

  ManualClock clock_;
  kube::FakeCluster cluster_;
  std::shared_ptr<kube::Api> plain_;
  std::unique_ptr<CrashApi> crashing_;
  std::mt19937_64 random_;
  Rates rates_;
  std::unique_ptr<Operator> operator_;
  std::map<std::string, nlohmann::json> seen_;  // last status by UID
  int nodes_;
  mutable std::map<std::string, std::shared_ptr<const nlohmann::json>> parsed_;  // by text
  std::uint64_t checked_version_ = 0;
};

}  // namespace paceline::sim
