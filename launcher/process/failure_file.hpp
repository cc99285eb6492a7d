// SPDX-License-Identifier: Apache-2.0
// What a rank's Python says of the exception that ends it, at once, while ending may take long
// (paceline/_failure.py writes it). It comes from the user's process: a short plain file or
// nothing.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>

#include "common/base/clock.hpp"
#include "launcher/rendezvous/message.hpp"

namespace paceline::process {

struct ReportedException {
  rendezvous::Cause cause = rendezvous::Cause::kOwn;  // kOwn or kPeer
  SteadyTime at;
  pid_t pid = 0;  // as the program gives it: to be compared, never to be signalled
};

/// Nothing where there is no such file, or one that is not as it must be: "MONOTONIC_NANOSECONDS
/// own|peer PID". A time after `now` is `now`.
std::optional<ReportedException> read_failure_file(const std::filesystem::path& file,
                                                   SteadyTime now);

/// Whether `pid` runs, and is `rank` or a process below it, by the /proc below `root`. A zombie
/// does not run: what its parent has not asked for has not ended that parent. `rank` itself counts
/// as long as nobody has waited for it, which is the caller's to know.
bool runs_in(const std::filesystem::path& root, pid_t pid, pid_t rank);

}  // namespace paceline::process
