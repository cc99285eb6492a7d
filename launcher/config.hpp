// SPDX-License-Identifier: Apache-2.0
// All settings of the launcher, read once from PACELINE_* (common/contract/env.hpp) into one value.
// main.cpp reads it; every other part gets it or a part of it.
//
// Pure: the environment is a parameter. Failure is an Error that names the variable, its value and
// what to write.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "common/contract/roles.hpp"
#include "common/failure/rules.hpp"
#include "common/net/address.hpp"
#include "launcher/frameworks/environment.hpp"

namespace paceline::launcher {

using net::Address;

struct Config {
  std::string job_name;
  std::string job_namespace;
  std::string job_uid;
  std::string role;
  contract::RoleKind kind = contract::RoleKind::kWorker;
  int start_stage = 0;
  int replica_index = 0;
  int node_rank = 0;  // from node_count on: a spare
  int node_count = 1;
  int spares = 0;
  int incarnation = 0;
  std::string pod_name;
  std::string pod_ip;
  std::string node_name;
  std::string subdomain;  // empty: replicas have no names

  std::string framework = "PyTorch";
  bool passthrough = false;
  int processes = 1;
  std::string tf_config = "Full";  // form of TF_CONFIG
  int cpu_limit = 0;               // 0: none
  std::string gpu_direct;          // Required, Preferred, Disabled; empty: no setting
  int master_port = -1;            // -1: derived from the attempt; 0: a free port for each attempt
  std::uint16_t port_base = 0;     // in the network of the node (contract/host_ports.hpp); 0: not

  Address rendezvous;
  Address listen;
  std::string token;
  std::chrono::nanoseconds startup_timeout = std::chrono::minutes(10);

  int attempt = 0;
  int restarts = 0;
  std::string goodput;      // JSON: what the job's earlier pods knew; empty: none
  std::string job_created;  // RFC 3339; empty: unknown
  std::string job_placed;   // when this pod was created; the same
  int max_restarts = 0;
  std::chrono::nanoseconds backoff{0};
  std::vector<failure::Rule> failure_rules;
  std::chrono::nanoseconds grace = std::chrono::seconds(30);
  bool rank_zero_decides = false;
  bool has_standbys = true;  // beside Python ranks
  bool saves_before_end = true;

  std::chrono::nanoseconds hang_after = std::chrono::minutes(5);  // 0: hangs are not looked for
  bool restarts_on_hang = false;
  std::chrono::nanoseconds diagnosis_window = std::chrono::seconds(20);

  std::string runtime_dir;
  std::string state_dir;
  std::string slot_dir;  // empty: the pod has no slot of the node's agent
  std::string termination_log;
  std::string device_root = "/";  // below it are the files of the network's devices
  Address http;                   // empty host: no HTTP endpoint

  /// One replica runs mpirun, which starts the ranks of all replicas through their launchers.
  bool uses_mpirun() const { return framework == "MPI" && !passthrough; }
  /// Where rank 0's process says what acts.
  std::string effects_file() const { return state_dir + "/effects.json"; }
  /// Where ranks are asked for a trace, and write it.
  std::string trace_folder() const { return state_dir + "/trace"; }
  /// Where ranks are asked to save, and tell their steps.
  std::string saves_folder() const { return state_dir + "/saves"; }
  /// The framework's own launcher starts the ranks.
  bool starts_one_process() const { return passthrough || uses_mpirun(); }
};

/// The environment with the settings of PACELINE_SETTINGS as variables of their own, which replace
/// those of the image. Failure: the variable is no JSON object of texts.
Result<frameworks::Environment> with_settings(frameworks::Environment environment);

/// The settings of a launcher that was started as this node rank.
Config at_place(Config config, int node_rank);

Result<Config> read_config(const frameworks::Environment& environment);

}  // namespace paceline::launcher
