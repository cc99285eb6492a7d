// SPDX-License-Identifier: Apache-2.0
// The way from a terminal to /v1/summary of rank 0's launcher: `kubectl exec` of
// `paceline-launcher summary` in rank 0's pod, where the job's token is. No token leaves the pod,
// and the terminal needs no route to it. docs/train/watch.md says which rights that needs.
#pragma once

#include <stop_token>
#include <string>

#include <nlohmann/json.hpp>

#include "common/base/error.hpp"
#include "common/kube/api/api.hpp"

namespace paceline::cli {

/// The summary. Errors are sentences for people, with what to do.
Result<nlohmann::json> pod_summary(kube::Api& api, const std::string& kubeconfig,
                                   const std::string& ns, const std::string& job,
                                   const std::stop_token& stop);

}  // namespace paceline::cli
