// SPDX-License-Identifier: Apache-2.0
// Limits on what one pod, and all pods of a node together, may use of the agent through their
// slots' sockets. Everything behind such a socket is untrusted. Each bound is per pod, so that one
// pod's excess does not affect another. Values.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace paceline::agent {

struct CollectLimits {
  // Series: every pod has `sure_ranks` guaranteed. Pods with more share `more_ranks`, at most
  // `ranks_of_pod` for each.
  std::size_t sure_ranks = 8;
  std::size_t more_ranks = 512;
  std::size_t ranks_of_pod = 64;
  /// Of ended pods; the oldest are dropped first.
  std::size_t ended_ranks = 512;
  std::chrono::seconds keep_ended{300};

  /// Open rings, a descriptor each.
  std::size_t rings_of_pod = 72;
  std::size_t rings_of_rank = 4;
  /// Steps of a pod that wait for amendments, 0.5 KiB each.
  std::size_t waiting_of_pod = 512;
  /// Records above this rate are counted as dropped and not read.
  double records_per_second = 20000;
  /// All pods of a node together have this many pods' quotas. If there are more pods, they share
  /// them equally.
  double full_quotas = 8;

  std::size_t clients_of_slot = 4;
  double connections_per_second = 1;
  double connections_at_once = 8;
  double frames_per_second = 64;
  double frames_at_once = 512;
  /// How long a client may wait until the kubelet names its pod.
  std::chrono::seconds unknown_pod{60};
};

}  // namespace paceline::agent
