// SPDX-License-Identifier: Apache-2.0
// Runs paceline-probe before the gang gathers and reads whether GPUDirect RDMA works in this pod
// (spec.network.gpuDirect). The probe is a separate program, because it opens the drivers'
// libraries, which may hang or crash. The launcher itself opens no library.
//
// ask_probe blocks its thread until the probe answers, `limit` is over, or a stop is requested;
// then the probe is killed. The calling thread must live as long as the probe, because the kernel
// ties the probe's life to it. Nothing fails: a problem is told in the answer, which then never
// says ready.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "common/telemetry/slot/slot_finding.hpp"
#include "launcher/frameworks/environment.hpp"

namespace paceline::launcher {

struct PodReadiness {
  std::optional<bool> ready;  // nullopt: not proved
  // the check that failed, as docs/designs/checks.md names it
  std::string check;
  std::string evidence;
  std::string remedy;
  std::vector<telemetry::SlotFinding> findings;  // handed to the node's agent
  bool operator==(const PodReadiness&) const = default;
};

struct ProbeCommand {
  std::vector<std::string> argv;
  std::vector<std::string> environment;  // NAME=value
  /// Longer than the probe's own limit.
  std::chrono::milliseconds limit = std::chrono::seconds(330);
};

/// paceline-probe of this tree, with the container's environment.
ProbeCommand pod_probe(const std::filesystem::path& tree,
                       const frameworks::Environment& environment);

PodReadiness ask_probe(const ProbeCommand& command, const std::stop_token& stop);
/// Does so on the thread that is returned, and calls `told` there.
std::jthread ask_in_background(ProbeCommand command, std::function<void(PodReadiness)> told);

/// Parses the probe's line of JSON. For any other text the answer is "not proved".
PodReadiness read_readiness(std::string_view text);

/// "memlock fails: locked memory is limited to 64 KiB; remedy: …"
std::string describe(const PodReadiness& readiness);

struct Judgement {
  bool joins = true;  // false: the pod ends instead of joining the gang
  std::string text;
};
/// `gpu_direct` is Required or Preferred.
Judgement judge(const PodReadiness& readiness, const std::string& gpu_direct,
                const std::string& pod_name);

}  // namespace paceline::launcher
