// SPDX-License-Identifier: Apache-2.0
#include "operator/service/waiting.hpp"

#include <algorithm>

namespace paceline {

Waiting waiting_jobs(const std::vector<std::shared_ptr<const observe::JobView>>& jobs) {
  std::map<std::string, std::map<std::string, std::int64_t>> reasons;
  std::map<std::string, std::int64_t> totals;
  for (const auto& job : jobs) {
    const api::JobStatus& status = job->status;
    const bool ours = job->errors.empty() && !job->of_other_manager();
    const bool is_new = status.phase.empty();
    if (!ours || (status.phase != "Queued" && !is_new)) continue;
    const std::string queue = api::queue_of(job->job);
    ++reasons[queue][is_new ? "Queued" : status.reason];
    ++totals[queue];
  }
  std::vector<std::pair<std::int64_t, std::string>> ranked;
  for (const auto& [queue, count] : totals) ranked.emplace_back(-count, queue);
  std::ranges::sort(ranked);
  Waiting waiting;
  for (std::size_t i = 0; i < ranked.size(); ++i) {
    const std::string& queue = ranked[i].second;
    for (const auto& [reason, count] : reasons[queue])
      waiting[{i < kNamedQueues ? queue : "other", reason}] += count;
  }
  return waiting;
}

}  // namespace paceline
