// SPDX-License-Identifier: Apache-2.0
// Starting one process of a rank: own process group, own environment, pipes for its output, CPUs to
// run on, killed when the launcher dies.
//
// The caller owns the returned pid (it must wait for it) and the read ends. Not tied to a thread,
// but the thread that calls it must live as long as the child: the kernel ties the child's life to
// it. Failure: an Error that names the program and what to look at.
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
  std::vector<int> cpus;                 // empty: wherever the launcher may run
  std::string working_dir;               // empty: ours
};

struct Spawned {
  pid_t pid = -1;
  UniqueFd out;
  UniqueFd err;
};

Result<Spawned> spawn(const SpawnRequest& request);

}  // namespace paceline::process
