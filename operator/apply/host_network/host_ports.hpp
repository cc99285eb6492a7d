// SPDX-License-Identifier: Apache-2.0
// HostPorts: chooses the ports of pods that are created in the network of their node. Each gets a
// block (common/contract/host_ports.hpp) of which no other pod of the node has a port. The pods are
// the record of what was chosen. So a restarted operator knows it, and a template with ports of
// other pods counts, too.
//
// The last choice for a replica counts for a minute, in which the cache gets the pod. If another
// operator chose the same meanwhile, kube-scheduler binds one of the two pods only.
//
// The clock must outlive it. Thread-safe.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.hpp"
#include "operator/api/training_job.hpp"
#include "operator/observe/views.hpp"
#include "operator/plan/job/plan.hpp"

namespace paceline::apply {

class HostPorts {
 public:
  explicit HostPorts(const Clock& clock) : clock_(clock) {}

  /// Sets CreatePod::port_base of those that are in the network of their node. `pods`: all of the
  /// cluster. Returns why not, if a node has no block left. The scheduler counts blocks, so this
  /// is rare: other pods took some after the placement, or some of a pod that has ended still
  /// count.
  std::optional<plan::Waiting> choose(
      const api::TrainingJob& job, std::vector<plan::CreatePod>& creates,
      const std::vector<std::shared_ptr<const observe::PodView>>& pods);

 private:
  struct Chosen {
    std::string node;
    int block = 0;
    SteadyTime at{};
  };

  const Clock& clock_;
  std::mutex mutex_;
  std::map<std::string, Chosen> chosen_;  // by the job's UID and the replica's name
};

/// Whether a role of the job has pods in the network of their node.
bool uses_host_network(const api::Spec& spec);

}  // namespace paceline::apply
