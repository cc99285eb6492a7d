// SPDX-License-Identifier: Apache-2.0
// What the kernel knows of the threads of a process: name, state, system call and where in the
// kernel each waits. These are no native stacks, which cannot be taken safely from a process that
// hangs; they tell a thread that computes from one that waits for the network, a lock or a disk.
//
// Reads the /proc below the given root. Stateless; thread-safe. Fields that may not be read are
// left out.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <string>

namespace paceline::process {

/// One line a thread, at most `most`; threads that are like the one before are counted.
std::string thread_states(const std::filesystem::path& root, pid_t pid, std::size_t most);

}  // namespace paceline::process
