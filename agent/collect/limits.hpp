// SPDX-License-Identifier: Apache-2.0
// What one pod, and all of a node together, may take of the agent by way of their slots' sockets.
// Everything behind such a socket is the user's word: each bound is a pod's own, so that nobody's
// excess is another's loss. Values.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace paceline::agent {

struct CollectLimits {
  // Series: every pod has `sure_ranks` that nobody can take from it; `more_ranks` are shared by
  // those that have more, at most `ranks_of_pod` each.
  std::size_t sure_ranks = 8;
  std::size_t more_ranks = 512;
  std::size_t ranks_of_pod = 64;
  /// Of pods that have ended: the oldest go first.
  std::size_t ended_ranks = 512;
  std::chrono::seconds keep_ended{300};

  /// Open rings, a descriptor each.
  std::size_t rings_of_pod = 72;
  std::size_t rings_of_rank = 4;
  /// Steps of a pod that wait for amendments, 0.5 KiB each.
  std::size_t waiting_of_pod = 512;
  /// Records beyond this are counted as dropped, unread.
  double records_per_second = 20000;
  /// All pods of a node together may have as much as so many may alone; where there are more, each
  /// has an equal share.
  double full_quotas = 8;

  std::size_t clients_of_slot = 4;
  double connections_per_second = 1;
  double connections_at_once = 8;
  double frames_per_second = 64;
  double frames_at_once = 512;
  /// How long a client may wait for the kubelet to name its pod.
  std::chrono::seconds unknown_pod{60};
};

}  // namespace paceline::agent
