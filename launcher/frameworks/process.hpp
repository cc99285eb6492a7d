// SPDX-License-Identifier: Apache-2.0
// One process of the gang, as the file of a framework sees it: its place in the rank table and the
// settings of its replica. Values and pure functions. Processes refer to a table that outlives
// them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/fabric/nccl.hpp"
#include "launcher/rendezvous/rank_table.hpp"

namespace paceline::frameworks {

struct RankSetting {
  std::string framework = "PyTorch";  // spec.framework.type
  bool passthrough = false;
  std::string tf_config = "Full";  // PACELINE_TF_CONFIG
  int threads = 1;                 // for OMP_NUM_THREADS
  std::string runtime_dir;         // "": no runtime is injected, as with the kill switch
  std::string rank_table_path;
  std::string telemetry_socket;
  std::string failure_file;
  std::string standby_file;   // "": the rank gets no standby
  std::string effects_file;   // of rank 0
  std::string save_request;   // "": ranks are never asked to save
  std::string trace_request;  // "": ranks are never asked for a trace
  std::string learned_dir;    // unless PACELINE_LEARNED_DIR names another
  // network interface that has this pod's address; "" if unknown
  std::string interface;
  fabric::Advice network;      // settings of NCCL and Gloo
  std::string cuda_injection;  // library for CUDA_INJECTION64_PATH; "": none
  int max_restarts = 0;
  std::string job_uid;
};

struct Process {
  const rendezvous::RankTable& table;
  const rendezvous::Node& node;  // the own one
  const RankSetting& setting;
  int local_rank = 0;
  int restarts = 0;

  /// Its number in the gang. Processes of roles that do not train have numbers from the world size.
  int rank() const { return node.first_rank + local_rank; }
};

using contract::RoleKind;

/// A pod's place among the pods that train, in the order of ranks, and how many there are. Pods of
/// other roles follow: their places start with that number.
struct Group {
  int rank = 0;
  int size = 0;
};
Group group_of(const Process& process);

/// How many processes the roles of this kind have.
int count(const rendezvous::RankTable& table, RoleKind kind);

/// The place of the process among those of its kind, from 0.
int index_of(const Process& process);

/// The port of a process. `base`: the framework's usual port. In a cluster a pod has an address of
/// its own, so that ports differ by attempt and local rank only. In the network of its node it has
/// ports of its own. On one machine the table has a range of free ports.
std::uint16_t port_of(const rendezvous::RankTable& table, const rendezvous::Node& node,
                      int local_rank, int base);

/// host:port of each process of this kind, in the order of their places.
std::vector<std::string> endpoints(const rendezvous::RankTable& table, RoleKind kind, int base);

/// The pod that runs the first process of this kind; null if no role has it.
const rendezvous::Node* first_of(const rendezvous::RankTable& table, RoleKind kind);

std::string joined(const std::vector<std::string>& parts);  // with commas

}  // namespace paceline::frameworks
