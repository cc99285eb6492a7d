// SPDX-License-Identifier: Apache-2.0
// The environment of one rank: the variables that its framework reads, made from the rank table, on
// top of those of the image and the user. Pure.
//
// The variables of rendezvous and ranks are always replaced. Defaults (OMP_NUM_THREADS, interfaces,
// PYTHONUNBUFFERED) are set only if the variable is unset. List variables are only prepended to.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace paceline::frameworks {

using Environment = std::map<std::string, std::string>;

struct RankPlace {
  int rank = 0;
  int local_rank = 0;
  int world_size = 1;
  int local_world_size = 1;
  int node_rank = 0;
  int node_count = 1;
  std::string role;
  int attempt = 0;
  int restarts = 0;
  int max_restarts = 0;
  std::string job_uid;
  std::string master_address;
  std::uint16_t master_port = 0;
};

struct RankSetting {
  bool passthrough = false;
  int threads = 1;          // for OMP_NUM_THREADS
  int processes = 1;        // the number that the framework's launcher starts in passthrough mode
  std::string runtime_dir;  // "": no runtime is injected, as with the kill switch
  std::string rank_table_path;
  std::string telemetry_socket;
  std::string failure_file;
  // network interface that has this pod's address; "" if unknown
  std::string interface;
  bool gpu_direct_off = false;  // spec.network.gpuDirect: Disabled
};

struct ComposedEnvironment {
  Environment variables;
  // list variables and defaults that were changed, for one log line
  std::vector<std::string> changes;
};

ComposedEnvironment compose_environment(const Environment& base, const RankPlace& place,
                                        const RankSetting& setting);

/// CPUs divided among the ranks of this replica, at least 1.
int threads_per_rank(int cpus, int processes);

}  // namespace paceline::frameworks
