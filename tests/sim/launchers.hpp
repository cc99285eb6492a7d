// SPDX-License-Identifier: Apache-2.0
// Launchers: plays the scheduler, the kubelets, and the launchers inside the pods. A container is
// reported as ended before its pod's phase is. The ranks of a gang restart in place while the
// budget lasts. A complete gang may end, one pod after the other. A launcher whose gang ended
// without it waits for ever, because no startup timeout helps the operator here.
//
// Cluster and chaos must outlive it. One thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "common/kube/fake/cluster.hpp"
#include "tests/sim/faulty_api.hpp"

namespace paceline::sim {

class Launchers {
 public:
  Launchers(kube::FakeCluster& cluster, Chaos& chaos) : cluster_(cluster), chaos_(chaos) {}

  /// Binds every ungated pod that fits on the node that its affinity names.
  void schedule();
  /// Every kubelet does a part of the due work, or all of it with `everything`.
  void run_pods(bool everything);
  /// A rank of one running gang fails. Its launchers restart it in place, or end the job if the
  /// budget is spent.
  void fail_rank();
  /// A container is killed.
  void kill(const std::string& pod);
  /// The summary that rank 0's launcher returns.
  Result<std::string> summary(const std::string& pod_ip) const;

 private:
  struct Gang {
    int attempt = 0;
    int restarts = 0;
  };
  struct End {
    int exit_code = 0;
    std::string message;
  };
  using Members = std::vector<const PodFacts*>;

  bool serves(const std::string& node) const;
  std::map<std::string, Members> whole_gangs() const;
  void end_gang(const std::string& uid, const Members& members, int exit_code, const char* verdict);
  void act(const PodFacts& pod, bool everything);
  void report_end(const PodFacts& pod, const End& end);
  void report_phase(const PodFacts& pod);
  void poke(const std::string& pod, const std::string& patch) {
    cluster_.poke(kube::kPods, "default", pod, patch);
  }

  kube::FakeCluster& cluster_;
  Chaos& chaos_;
  std::map<std::string, Gang> gangs_;  // by UID of the job
  std::map<std::string, End> ending_;  // by UID of the pod: endings that are decided but not done
  std::map<std::string, int> exit_codes_;     // by UID of the pod
  std::map<std::string, std::string> by_ip_;  // UID of the job
};

}  // namespace paceline::sim
