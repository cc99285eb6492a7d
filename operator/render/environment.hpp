// SPDX-License-Identifier: Apache-2.0
// The PACELINE_* environment of one replica. A pod and `paceline run` use the same function, so
// that a cluster and a laptop start ranks with the same variables (common/contract/env.hpp).
//
// Pure and thread-safe; cannot fail on a job that passed api::validate_program.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "operator/api/training_job.hpp"

namespace paceline::render {

using Environment = std::vector<std::pair<std::string, std::string>>;

/// What surrounds a replica and is not in the spec. Every string that is empty leaves its variable
/// out: in a pod the kubelet fills those in (downward API, Secret), see render/pod.hpp.
struct Endpoints {
  std::string rendezvous_address;  // ip:port where rank 0's launcher is reached
  std::string
      // ip:port where node rank 0 listens (given to every replica; only node rank 0 uses it)
      rendezvous_listen;
  std::string http_listen;  // ip:port of this replica's launcher
  std::string runtime_dir;  // holds bin/, lib/, python/
  std::string state_dir;    // writable, this replica's own
  std::string termination_log;
  std::string startup_timeout;  // a duration
  std::string token;
  std::string pod_name;
  std::string pod_ip;
  std::string node_name;
  std::string subdomain;  // where names of replicas resolve
  std::optional<api::Acceleration> acceleration;
  int attempt = 0;  // seeds: what the operator last knew
  int restarts = 0;
  std::string goodput;             // JSON of status.goodput, for node rank 0; empty: none
  std::optional<WallTime> placed;  // the job
  int incarnation = 0;
  int port_base = 0;  // of the ports in the network of the node; 0: the pod has its own network
};

Environment replica_environment(const api::TrainingJob& job, const api::Replica& replica,
                                const Endpoints& endpoints);

/// The value of PACELINE_SETTINGS: the variables as one JSON object. A pod with 27 variables is
/// twice as large on the wire and in etcd, where managedFields repeat every name. What has the
/// value of contract::kPodDefaults is left out.
std::string settings_of(const Environment& environment);

}  // namespace paceline::render
