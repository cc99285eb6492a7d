// SPDX-License-Identifier: Apache-2.0
// The launcher processes of a TrainingJob on this machine: one per replica, with command,
// environment and working directory. Pure.
//
// A field that cannot work on one machine is refused by name. A field that has no meaning here is
// ignored and named once.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cli/run/path_map.hpp"
#include "operator/api/field_error.hpp"
#include "operator/api/training_job.hpp"

namespace paceline::cli {

struct Machine {
  std::map<std::string, std::string> environment;  // from the user's shell
  std::vector<PathMapping> mappings;
  std::string launcher;     // path of paceline-launcher
  std::string runtime_dir;  // "" runs without telemetry
  std::string state_dir;    // of this run only
  std::string host_name;
  std::string token;
  int cpus = 1;
  std::uint16_t rendezvous_port = 0;
  std::vector<std::uint16_t> http_ports;  // one per replica
};

struct LocalReplica {
  int node_rank = 0;
  std::string name;
  std::vector<std::string> argv;
  std::map<std::string, std::string> environment;
  std::string working_dir;  // "": the current directory
  std::string state_dir;
  std::string termination_log;
  std::string explain_file;  // where rank 0's process tells what acted
};

struct LocalPlan {
  std::vector<LocalReplica> replicas;
  std::vector<std::string> ignored;  // fields that have no meaning here
};

/// Fields that cannot work on one machine; empty if the job can run.
api::FieldErrors refuse_locally(const api::TrainingJob& job,
                                const std::vector<PathMapping>& mappings);

LocalPlan plan_locally(const api::TrainingJob& job, const Machine& machine);

/// Expands $(NAME) as the kubelet does: from the variables set before. Unknown names stay, and
/// $$(NAME) is an escape.
std::string expand_references(const std::string& text,
                              const std::map<std::string, std::string>& variables);

}  // namespace paceline::cli
