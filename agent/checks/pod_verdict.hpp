// SPDX-License-Identifier: Apache-2.0
// Whether GPUDirect RDMA works in this pod, in one word and one reason: what the launcher acts on
// before the gang's barrier. Judged by what was tried here alone: which devices a pod was given is
// no matter of the node's topology.
//
// Pure. Nothing fails: what cannot be told is neither ready nor not.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/checks/check.hpp"
#include "agent/registration/registrations.hpp"

namespace paceline::agent {

struct PodVerdict {
  std::optional<bool> ready;  // absent: not proved
  std::string check;          // the check of the table that stands in the way; empty when ready
  std::string evidence;
  std::string remedy;
  bool operator==(const PodVerdict&) const = default;
};

PodVerdict judge_pod(const Registrations& tried);

/// The checks that only a pod can answer, each with at least one finding; for the node's table.
std::vector<Finding> pod_findings(const Registrations& tried);

/// One line of JSON, as docs/designs/contracts.md has it.
std::string pod_verdict_json(const PodVerdict& verdict, const std::vector<Finding>& findings = {});

}  // namespace paceline::agent
