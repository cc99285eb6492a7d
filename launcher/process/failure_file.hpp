// SPDX-License-Identifier: Apache-2.0
// Reads the file in which a rank's Python reports the exception that ends it (paceline/_failure.py
// writes it). Python writes it at once, while the process may take long to exit. RankSet reads it.
//
// The file comes from the user's process, so anything but a short regular file is ignored.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>

#include "common/base/clock.hpp"
#include "launcher/rendezvous/message.hpp"

namespace paceline::process {

struct ReportedException {
  rendezvous::Cause cause = rendezvous::Cause::kOwn;  // always kOwn or kPeer
  SteadyTime at;
  pid_t pid = 0;  // as the program wrote it: compare it, never signal it
};

/// nullopt if there is no such file or its content is not "MONOTONIC_NANOSECONDS own|peer PID". A
/// time after `now` becomes `now`.
std::optional<ReportedException> read_failure_file(const std::filesystem::path& file,
                                                   SteadyTime now);

/// Whether `pid` runs and is `rank` or a descendant of it, by the /proc below `root`. A zombie does
/// not count as running: a child whose parent has not waited for it has not ended that parent.
/// `rank` itself counts while no one has waited for it, which the caller must know.
bool runs_in(const std::filesystem::path& root, pid_t pid, pid_t rank);

}  // namespace paceline::process
