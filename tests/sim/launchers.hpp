// SPDX-License-Identifier: Apache-2.0
// Launchers: plays the scheduler, the kubelets, and the launchers inside the pods. A container is
// reported as ended before its pod's phase is. The ranks of a gang restart in place while the
// budget lasts. A gang trains from the moment when it is complete until it loses a member that is
// not replaced alone. With spares, it starts anew without those that are lost while enough are
// left. A gang that trains may end when all members that decide are there, one pod after the other.
// A launcher whose gang ended without it waits for ever, because no startup timeout helps the
// operator here. Only if an image is missing, those that wait may give up.
//
// The ranks of a gang that trains save at one step before a member ends that was asked to end, and
// when a node may soon be lost. Some then exit, and the gang starts anew (warnings/saving.cpp).
//
// Cluster, clock and chaos must outlive it. One thread.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "common/base/clock.hpp"
#include "common/base/error.hpp"
#include "common/kube/fake/cluster.hpp"
#include "operator/apply/warnings/warned_nodes.hpp"
#include "tests/sim/faulty_api.hpp"

namespace paceline::sim {

/// Why a kubelet or the scheduler evicts a pod.
enum class Eviction { kOwnLimit, kNodePressure, kPreemption };

class Launchers {
 public:
  Launchers(kube::FakeCluster& cluster, ManualClock& clock, Chaos& chaos)
      : cluster_(cluster), clock_(clock), chaos_(chaos) {}

  /// Binds every ungated pod that fits on the node that its affinity names, and whose ports are
  /// free there.
  void schedule();
  /// Every kubelet does a part of the due work, or all of it with `everything`.
  void run_pods(bool everything);
  /// A rank of one running gang fails. Its launchers restart it in place, or end the job if the
  /// budget is spent.
  void fail_rank();
  /// A container is killed.
  void kill(const std::string& pod);
  /// A pod that runs is evicted. A preempted pod must also be deleted.
  void evict(const std::string& pod, Eviction cause);
  /// Another machine has the node's name, and reports that the containers of the first are gone.
  void lose_containers(const std::string& node);
  /// True while kMissingImage cannot be pulled.
  bool lack_images() const { return lack_images_; }
  void push_images() { lack_images_ = false; }
  /// Whoever set finalizers on pods takes them away: those of one pod that goes, or all.
  void let_go(bool all);
  /// Tells rank 0's launcher of nodes that may soon be lost, if any, and returns its summary. Some
  /// launchers are of an earlier version, some answer late, and some not at all.
  Result<std::string> ask(const std::string& pod_ip, const apply::Warnings& warned);
  bool trains(const std::string& uid) {
    (void)follow();
    return gangs_[uid].trains;
  }

 private:
  struct Saved {
    int attempt = 0;
    int step = 0;
  };
  struct Gang {
    int attempt = 0;
    int restarts = 0;
    bool trains = false;
    std::size_t here = 0;       // of its members, if it has spares
    bool restarts_now = false;  // and says so when it is asked next
    int seconds = 0;            // that rank 0's launcher has accounted for
    std::string verdict;        // as the launcher of node rank 0 knows it; empty: none yet
    int step = 0;
    int hosts = 0;               // launchers that node rank 0 has had; only the last one knows:
    std::optional<Saved> saved;  // at which step all ranks have
    std::map<std::string, SteadyTime> warned;  // nodes, and when their warning was last repeated
    std::vector<std::string> saves_for;        // warned nodes, because of which the ranks now save
    int asked = 0;                             // warnings that have come, for all launchers
  };
  struct End {
    int exit_code = 0;
    std::string message;
  };
  using Members = std::vector<const PodFacts*>;

  using Bindings = std::vector<std::pair<std::string, std::string>>;  // pod and node

  bool serves(const std::string& node) const;
  void bind_groups(std::map<std::string, int>& used, Bindings& bound);
  std::map<std::string, Members> present() const;
  std::map<std::string, Members> follow();
  void follow_with_spares(const std::string& uid, Gang& gang, const JobFacts& job,
                          const Members& members);
  std::map<std::string, Members> training_gangs();
  bool runs(const PodFacts& pod) const;
  Result<std::string> summary(const std::string& pod_ip);
  bool is_silent(const std::string& uid) const;
  void warn(Gang& gang, const std::vector<std::string>& nodes);
  void save(Gang& gang);
  void end_saves(bool everything);
  void save_before_an_end(const std::string& uid, Gang& gang);
  static nlohmann::json told_of(const Saved& saved);
  void give_up();
  void end_gang(const std::string& uid, const Members& members, int exit_code, const char* verdict);
  void act(const PodFacts& pod, bool everything);
  void take_away(const PodFacts& pod);
  End last_words(const PodFacts& pod) const;
  void collect_unbound();
  void report_end(const PodFacts& pod, const End& end);
  void report_phase(const PodFacts& pod);
  void poke(const std::string& pod, const std::string& patch) {
    cluster_.poke(kube::kPods, "default", pod, patch);
  }

  kube::FakeCluster& cluster_;
  ManualClock& clock_;
  Chaos& chaos_;
  bool lack_images_ = true;
  std::map<std::string, Gang> gangs_;  // by UID of the job
  std::map<std::string, End> ending_;  // by UID of the pod: endings that are decided but not done
  std::map<std::string, std::string> last_words_;  // by UID of the pod, if its ranks have saved
  std::map<std::string, int> exit_codes_;          // by UID of the pod
  std::map<std::string, std::string> by_ip_;       // UID of the job
};

}  // namespace paceline::sim
