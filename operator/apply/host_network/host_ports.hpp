// SPDX-License-Identifier: Apache-2.0
// HostPorts: chooses the ports of pods that are created in the network of their node. Each gets a
// block (common/contract/host_ports.hpp) of which no other pod of the node has a port. The pods are
// the record of what was chosen. So a restarted operator knows it, and a template with ports of
// other pods counts, too.
//
// The last choice for a replica counts until the cache has its pod. It counts for a minute at most,
// since the pod may have been refused. If another operator chose the same meanwhile, kube-scheduler
// binds one of the two pods only.
//
// Clock and store must outlive it. Thread-safe.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.hpp"
#include "common/kube/watch/store.hpp"
#include "operator/api/training_job.hpp"
#include "operator/observe/views.hpp"
#include "operator/plan/job/plan.hpp"

namespace paceline::apply {

class HostPorts {
 public:
  /// `pods`: the cache of all pods of the cluster.
  HostPorts(const Clock& clock, const kube::Store<observe::PodView>& pods)
      : clock_(clock), pods_(pods) {}

  /// Sets CreatePod::port_base of those that are in the network of their node. Returns why not, if
  /// a node has no block left. The scheduler counts blocks, so this is rare: other pods took some
  /// after the placement, or some of a pod that was refused still count.
  std::optional<plan::Waiting> choose(const api::TrainingJob& job,
                                      std::vector<plan::CreatePod>& creates);

  /// The cache has the pod of a job, which is from now on the record of its ports.
  void seen(const observe::PodView& pod);

 private:
  struct Chosen {
    std::string node;
    int incarnation = 0;
    int block = 0;
    SteadyTime at{};
  };

  const Clock& clock_;
  const kube::Store<observe::PodView>& pods_;
  std::mutex mutex_;
  std::map<std::string, Chosen> chosen_;  // by the job's UID and the replica's name
};

/// Whether a role of the job has pods in the network of their node.
bool uses_host_network(const api::Spec& spec);

}  // namespace paceline::apply
