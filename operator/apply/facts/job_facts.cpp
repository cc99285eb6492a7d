// SPDX-License-Identifier: Apache-2.0
#include "operator/apply/facts/job_facts.hpp"

#include <string_view>

namespace paceline::apply {

std::vector<std::string> actions_of(const plan::Plan& plan) {
  std::vector<std::string> actions;
  const auto some = [&](std::string_view verb, std::size_t count, std::string_view what) {
    if (count > 0)
      actions.push_back(std::string(verb) + " " + std::to_string(count) + " " + std::string(what) +
                        (count == 1 ? "" : "s"));
  };
  some("create", plan.creates.size(), "pod");
  some("ungate", plan.ungates.size(), "pod");
  some("delete", plan.deletes.size(), "pod");
  some("create", plan.placeholders.size(), "placeholder");
  some("ask the scheduler for", plan.find_nodes.size(), "other node");
  if (plan.queued) actions.emplace_back("ask the scheduler for a placement");
  if (plan.request_nodes) actions.emplace_back("ask the autoscaler for nodes");
  if (plan.withdraw_request) actions.emplace_back("withdraw the request for nodes");
  if (plan.workload_step != plan::WorkloadStep::kNone)
    actions.emplace_back("write the job's Workload of Kueue");
  if (plan.back_off) actions.emplace_back("wait before the next try");
  if (plan.delete_job) actions.emplace_back("delete the job");
  return actions;
}

}  // namespace paceline::apply
