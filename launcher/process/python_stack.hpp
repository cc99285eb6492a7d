// SPDX-License-Identifier: Apache-2.0
// Asks a Python process for its stacks, and reads them. paceline/_inject/stacks.py has registered
// faulthandler for a signal in that process, and gave it a file without a name to write to. The
// kernel shows that file among the process's descriptors.
//
// The signal is sent only to a process that catches it and has such a file: any other would be
// ended by it. Failure is an Error that says why a process cannot be asked.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>

#include "common/base/error.hpp"
#include "common/base/unique_fd.hpp"

namespace paceline::process {

/// Near the end of the real-time signals, which programs use from their beginning.
inline constexpr int kStackSignal = 61;

/// The process itself if it can be asked, else the first of its descendants that can; 0 if none.
pid_t process_to_ask(const std::filesystem::path& root, pid_t pid);

/// Empties the file and sends the signal. The stacks are in the file soon after.
Result<UniqueFd> ask_for_stacks(const std::filesystem::path& root, pid_t pid);

/// What the process has written by now; the end of it, if it is longer than `most`. Only printable
/// ASCII, whatever the process wrote.
std::string read_stacks(const UniqueFd& file, std::size_t most);

}  // namespace paceline::process
