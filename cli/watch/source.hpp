// SPDX-License-Identifier: Apache-2.0
// Where `paceline top` has its jobs from: the API server of a cluster, by watch, or the runs of
// this machine. Each has a thread of its own, which its destructor ends. Thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/watch/facts.hpp"
#include "common/base/clock.hpp"
#include "common/base/error.hpp"
#include "common/kube/api/api.hpp"
#include "common/kube/api/object_meta.hpp"

namespace paceline::cli {

struct JobEntry {
  kube::ObjectMeta meta;
  JobFacts facts;
  nlohmann::json document{};  // null unless the source was asked to keep documents
};
using JobList = std::vector<std::shared_ptr<const JobEntry>>;

struct SourceHealth {
  bool filled = false;    // all jobs have been read once
  std::string trouble{};  // "" while all is well
  WallTime seen{};        // when the jobs were last known to be so
};

/// All that is known of one job, and why it is not more.
struct Detail {
  nlohmann::json document;
  std::string gap{};
};

class JobSource {
 public:
  virtual ~JobSource() = default;
  virtual JobList jobs() const = 0;
  /// Blocks for seconds.
  virtual Result<Detail> detail(const std::string& ns, const std::string& name,
                                const std::stop_token& stop) = 0;

  SourceHealth health() const;
  /// Waits until all jobs have been read once, or there is trouble; at most that long.
  SourceHealth first_answer(std::chrono::milliseconds most) const;

 protected:
  void well(WallTime now);
  void trouble(std::string text);

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  SourceHealth health_;
};

/// TrainingJobs of a namespace; of all for "". `api` is shared. With `kubeconfig` kubectl is told
/// which to use; "" is its own choice.
std::unique_ptr<JobSource> watch_cluster(std::shared_ptr<kube::Api> api, const std::string& ns,
                                         const std::string& kubeconfig, const Clock& clock,
                                         bool keep_documents);

/// The runs whose state directories are below `base`.
std::unique_ptr<JobSource> watch_machine(const std::string& base, const Clock& clock);

/// One job of a cluster, with its ranks if they can be asked.
Result<Detail> cluster_detail(kube::Api& api, const std::string& kubeconfig, const std::string& ns,
                              const std::string& name, const std::stop_token& stop);

}  // namespace paceline::cli
