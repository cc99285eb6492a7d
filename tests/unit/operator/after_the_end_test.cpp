// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "common/contract/labels.hpp"
#include "operator/plan/job_plan.hpp"
#include "operator/status/phase.hpp"

namespace paceline::plan {
namespace {

/// A pod as the kubelet reports it before its final phase: its containers have ended, or one still
/// runs, and the phase says Running.
std::shared_ptr<const observe::PodView> pod(const std::string& name,
                                            const std::string& sidecar_state) {
  const std::string json = R"({"metadata":{"name":")" + name + R"(","uid":"u-)" + name + R"(",
      "labels":{"paceline.dev/job-uid":"job","paceline.dev/node-rank":"0","paceline.dev/incarnation":"0"},
      "ownerReferences":[{"kind":"TrainingJob","name":"j","uid":"job","controller":true}]},
      "spec":{"containers":[{"name":"trainer","command":["/opt/paceline/bin/paceline-launcher"]},{"name":"side"}]},
      "status":{"phase":"Running","containerStatuses":[
        {"name":"trainer","state":{"terminated":{"exitCode":0}}},{"name":"side","state":{")" +
                           sidecar_state + R"(":{}}}]}})";
  auto view = observe::project_pod(json);
  if (!view) throw std::runtime_error(view.error().message);
  return std::make_shared<const observe::PodView>(std::move(*view));
}

std::vector<std::string> deleted_under(api::CleanPodPolicy policy) {
  observe::JobView job;
  job.job.spec.managed_by = contract::kManagedBy;
  job.job.spec.clean_pod_policy = policy;
  status::set_condition(job.status, status::kSucceeded, true, "Completed", "", {});
  const Memory memory;
  const Observed observed{job,
                          {pod("over", "terminated"), pod("side-runs", "running")},
                          [](const auto&) { return nullptr; },
                          {},
                          memory};
  std::vector<std::string> names;
  for (const DeletePod& deletion : plan_job(observed).deletes) names.push_back(deletion.name);
  return names;
}

TEST(AfterTheEnd, APodWhoseContainersHaveEndedStaysForItsLogs) {
  // The kubelet writes the end of the containers first and the phase later. Deleting the pod in
  // between would lose its logs.
  EXPECT_EQ(deleted_under(api::CleanPodPolicy::kRunning), std::vector<std::string>{"side-runs"});
  EXPECT_EQ(deleted_under(api::CleanPodPolicy::kAll),
            (std::vector<std::string>{"over", "side-runs"}));
  EXPECT_EQ(deleted_under(api::CleanPodPolicy::kNone), std::vector<std::string>{});
}

}  // namespace
}  // namespace paceline::plan
