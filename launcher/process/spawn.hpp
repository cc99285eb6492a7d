// SPDX-License-Identifier: Apache-2.0
// Starts one process of a rank: own process group, own environment, pipes for its output, the CPUs
// that it may use, and a kill signal when the launcher dies. RankSet and preflight use it, and
// `paceline run` starts launchers by it.
//
// The caller owns the returned pid, which it must wait for, and the read ends. The calling thread
// must live as long as the child, because the kernel ties the child's life to it. Failure is an
// Error that names the program and what to check.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/unique_fd.hpp"

namespace paceline::process {

struct SpawnRequest {
  std::vector<std::string> argv;         // argv[0] is looked up in PATH as the shell would
  std::vector<std::string> environment;  // NAME=value
  std::vector<int> cpus;                 // empty: the same CPUs as the launcher
  std::string working_dir;               // empty: the launcher's own
};

struct Spawned {
  pid_t pid = -1;
  UniqueFd out;
  UniqueFd err;
};

Result<Spawned> spawn(const SpawnRequest& request);

}  // namespace paceline::process
