// SPDX-License-Identifier: Apache-2.0
// Starts one child process with its own process group, environment, CPUs, and pipes for its output.
// The kernel kills it when its parent dies.
//
// The caller owns the pid (and must wait for it) and the read ends of the pipes. The thread that
// calls `spawn` must live as long as the child, because the kernel ties the child's life to that
// thread. Failure: an Error that names the program and what to check.
#pragma once

#include <sched.h>
#include <sys/resource.h>
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
  std::vector<int> cpus;                 // empty: all CPUs that the parent may use
  std::string working_dir;               // empty: the parent's
  std::optional<rlimit> open_files{};    // limit of open files; nullopt: the parent's
  int kept_fd = -1;                      // stays open in the child under its number; -1: none
};

struct Spawned {
  pid_t pid = -1;
  UniqueFd out;
  UniqueFd err;
};

Result<Spawned> spawn(const SpawnRequest& request);

}  // namespace paceline::process
