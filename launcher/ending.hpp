// SPDX-License-Identifier: Apache-2.0
// How a launcher ends: the full report, the termination message that the kubelet reads, and the
// exit code. Launcher and main.cpp call it. A file that cannot be written is logged.
#pragma once

#include <optional>
#include <string>

#include "common/telemetry/stats/goodput.hpp"
#include "common/telemetry/stats/summary.hpp"
#include "launcher/config.hpp"
#include "launcher/diagnosis/finding.hpp"
#include "launcher/log.hpp"
#include "launcher/rendezvous/member.hpp"

namespace paceline::launcher {

/// The exit code of contract/labels.hpp for this end.
int exit_code(rendezvous::End end);

/// `goodput`: only of node rank 0.
void write_ending(const Config& config, const rendezvous::Outcome& outcome,
                  const telemetry::JobSummary& summary,
                  const std::optional<telemetry::Goodput>& goodput, diagnosis::Findings findings,
                  Log& log);

/// Writes the termination message of a replica that could not start. Returns its exit code.
int refuse(const std::string& termination_log, const std::string& message, Log& log);

/// The same for a launcher that has its settings. If another program of the node has a port of the
/// pod's, the preflight has failed, so that the job is placed on other nodes.
int refuse(const Config& config, const Error& error, Log& log);

}  // namespace paceline::launcher
