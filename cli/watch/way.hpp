// SPDX-License-Identifier: Apache-2.0
// How a command comes to the job that it was asked about: job/NAME in a cluster, run/NAME on this
// machine, or a file that an earlier command wrote.
#pragma once

#include <memory>
#include <stop_token>
#include <string>

#include "cli/watch/source.hpp"
#include "common/base/clock.hpp"
#include "common/base/error.hpp"
#include "common/kube/api/api.hpp"

namespace paceline::cli {

struct ClusterWay {
  std::shared_ptr<kube::Api> api;
  std::string ns;  // of the kubeconfig's context, if none was named
};
Result<ClusterWay> find_cluster(const std::string& kubeconfig, const std::string& ns,
                                const Clock& clock);

struct Target {
  enum class Kind { kJob, kRun, kFile } kind = Kind::kJob;
  std::string name;  // or path
};
/// "job/NAME", "trainingjob/NAME", "run/NAME", or a path that ends in .json.
Result<Target> parse_target(const std::string& text);

struct LookOptions {
  std::string target{};
  std::string kubeconfig{};
  std::string ns{};
};
/// Blocks for seconds.
Result<Detail> look_at(const LookOptions& options, const Clock& clock);

}  // namespace paceline::cli
