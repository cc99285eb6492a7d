// SPDX-License-Identifier: Apache-2.0
// Whether GPUDirect RDMA works in this pod, with one reason. `paceline-probe --pod-verdict` prints
// it, and the launcher acts on it before the gang's barrier. It is judged only by what was tried in
// this pod, because a pod has only some of the node's devices.
//
// Pure. Nothing fails: if it cannot be decided, `ready` is nullopt.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/checks/check.hpp"
#include "agent/registration/registrations.hpp"

namespace paceline::agent {

struct PodVerdict {
  std::optional<bool> ready;  // nullopt: not proved
  std::string check;          // the check that failed; empty when ready
  std::string evidence;
  std::string remedy;
  bool operator==(const PodVerdict&) const = default;
};

PodVerdict judge_pod(const Registrations& tried);

/// The checks that only a pod can answer, each with at least one finding. The launcher hands them
/// to the node's agent.
std::vector<Finding> pod_findings(const Registrations& tried);

/// One line of JSON; docs/designs/contracts.md describes it.
std::string pod_verdict_json(const PodVerdict& verdict, const std::vector<Finding>& findings = {});

}  // namespace paceline::agent
