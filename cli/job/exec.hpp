// SPDX-License-Identifier: Apache-2.0
// The way from a terminal to rank 0's launcher of a job: `kubectl exec` of `paceline-launcher` in
// its pod, where the job's token is. No token leaves the pod, and the terminal needs no route to
// it. Needs the rights to list pods and to create pods/exec in the namespace.
//
// Plain functions that block. Errors say what to do.
#pragma once

#include <functional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/error.hpp"
#include "common/kube/api/api.hpp"

namespace paceline::cli {

struct JobName {
  std::string kubeconfig{};  // empty: kubectl's own choice
  std::string ns{};
  std::string name{};
};

/// The words of the `kubectl exec` that runs this command of the launcher in the pod of node rank
/// 0. Blocks for one request. kNotFound if no such pod runs.
Result<std::vector<std::string>> exec_in_rank_zero(kube::Api& api, const JobName& job,
                                                   const std::vector<std::string>& arguments,
                                                   const std::stop_token& stop = {});

/// Runs a program without input, and passes on each line that it prints, however long, until one is
/// refused. What it prints to stderr is passed through to stderr. Returns its exit code.
Result<int> read_lines_of(const std::vector<std::string>& argv,
                          const std::function<Status(std::string_view line)>& take);

}  // namespace paceline::cli
