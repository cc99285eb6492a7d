// SPDX-License-Identifier: Apache-2.0
// What paceline-probe says of GPUDirect RDMA in this pod, before the gang gathers
// (spec.network.gpuDirect). The probe is another program, since it opens the drivers' libraries,
// which may hang or crash, and this one opens none.
//
// Blocks its thread until the probe has answered, has taken `limit`, or a stop is asked for; then
// the probe is killed. The thread must live that long: the kernel ties the probe's life to it.
// Nothing fails: what went wrong is in the answer, and is never readiness.
#pragma once

#include <chrono>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "common/telemetry/slot/slot_finding.hpp"

namespace paceline::launcher {

struct PodReadiness {
  std::optional<bool> ready;  // absent: not proved
  // the check that stands in the way, as docs/designs/checks.md names it
  std::string check;
  std::string evidence;
  std::string remedy;
  std::vector<telemetry::SlotFinding> findings;  // for the node's agent
  bool operator==(const PodReadiness&) const = default;
};

struct ProbeCommand {
  std::vector<std::string> argv;
  std::vector<std::string> environment;  // NAME=value
  /// The probe gives up by itself before this.
  std::chrono::milliseconds limit = std::chrono::seconds(330);
};

PodReadiness ask_probe(const ProbeCommand& command, const std::stop_token& stop);

/// The probe's line; anything else is no proof.
PodReadiness read_readiness(std::string_view text);

/// "memlock fails: locked memory is limited to 64 KiB; remedy: …"
std::string describe(const PodReadiness& readiness);

}  // namespace paceline::launcher
