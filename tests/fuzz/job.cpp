// SPDX-License-Identifier: Apache-2.0
// A TrainingJob with any spec and status, as a user or a client that may write the status can make
// it: read, checked, planned and rendered.
#include <nlohmann/json.hpp>

#include "operator/observe/views.hpp"
#include "operator/plan/job_plan.hpp"
#include "operator/plan/placement/constraints.hpp"
#include "operator/render/pod.hpp"
#include "tests/fuzz/fuzz.hpp"

namespace {

constexpr int kMostReplicas = 32;  // rendering thousands finds no more faults

paceline::plan::Plan plan_for(const paceline::observe::JobView& job,
                              const paceline::plan::Memory& memory) {
  return paceline::plan::plan_job({.job = job,
                                   .pods = {},
                                   .node = [](const std::string&) { return nullptr; },
                                   .now = paceline::WallTime(std::chrono::hours(500'000)),
                                   .memory = memory});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace paceline;
  const auto job = observe::project_job(fuzz::text(data, size));
  if (!job) return 0;
  plan::Memory memory;
  const plan::Plan first = plan_for(*job, memory);
  if (!job->errors.empty()) {
    fuzz::require(first.creates.empty(), "a job with errors gets no pods");
    return 0;
  }
  const int replicas = api::replica_count(job->job.spec);
  fuzz::require(replicas > 0, "a valid job has replicas");
  if (replicas > kMostReplicas) return 0;
  for (const api::Replica& replica : api::replicas_of(job->job.spec)) {
    const nlohmann::json pod = render::render_pod(job->job, replica, {});
    (void)plan::read_constraints(pod["spec"]);
    fuzz::require(
        observe::project_pod(pod.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace))
            .has_value(),
        "a rendered pod can be read");
  }
  memory.admission = std::vector<std::string>(static_cast<std::size_t>(replicas), "node");
  (void)plan_for(*job, memory);
  return 0;
}
