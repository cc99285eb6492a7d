// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "agent/checks/check_functions.hpp"

namespace paceline::agent {
namespace {

/// Adds "unknown" and returns false if nothing was tried in a job's pod: another process has other
/// limits and devices.
bool tried_in_pod(const Node& node, Findings& found) {
  if (!has_gpu_and_nic(node, found)) return false;
  if (node.registrations && node.registrations->in_pod) return true;
  found.unknown("", "answered in the job's pod: its limits and environment are its own");
  return false;
}

}  // namespace

void check_memlock(const Node& node, Findings& found) {
  if (!tried_in_pod(node, found)) return;
  const auto& limit = node.registrations->memlock_bytes;
  limit ? found.bad("", "locked memory is limited to " + std::to_string(*limit / 1024) + " KiB")
        : found.pass("", "no limit");
}

void check_uverbs_access(const Node& node, Findings& found) {
  if (!tried_in_pod(node, found)) return;
  const auto& attempts = node.registrations->attempts;
  for (const auto* nic : node.compute_nics) {
    const auto open = std::find_if(attempts.begin(), attempts.end(), [&](const Attempt& attempt) {
      return attempt.step == Step::kOpen && attempt.nic == nic->name;
    });
    if (open == attempts.end()) {
      const auto& problem = node.registrations->problem;
      found.unknown(nic->name, problem.empty() ? "libibverbs does not list it here" : problem);
    } else if (open->outcome == Outcome::kDone) {
      found.pass(nic->name, "opens");
    } else {
      found.bad(nic->name, open->why);
    }
  }
}

void check_nccl_env(const Node& node, Findings& found) {
  if (!tried_in_pod(node, found)) return;
  std::vector<std::string> nics;
  for (const auto& attempt : node.registrations->attempts) {
    if (attempt.step == Step::kOpen && attempt.outcome == Outcome::kDone)
      nics.push_back(attempt.nic);
  }
  const auto troubles = nccl_troubles(node.registrations->nccl, nics, node.registrations->netdevs,
                                      node.registrations->nccl_version);
  for (const auto& trouble : troubles) found.bad("", trouble.evidence);
  if (troubles.empty()) found.pass("", "nothing is in the way");
}

}  // namespace paceline::agent
