// SPDX-License-Identifier: Apache-2.0
// ResourceQuota: a gang of which the namespace's quota admits only a part is not started. Scoped
// quotas are left to the API server. It decides in the end anyway: if it refuses one pod, the whole
// set is removed. Pure.
#pragma once

#include <string>
#include <vector>

#include "operator/plan/placement/gangs.hpp"

namespace paceline::plan {

/// "quota team-a: pods: 3 needed, 1 of 3 left"; empty if the gang fits.
std::string quota_refusal(const QueuedGang& gang, const std::vector<observe::QuotaView>& quotas);

/// "quota team-a: pods: 3 needed, of 2 in all"; empty unless the gang exceeds a quota that nothing
/// else uses.
std::string impossible_quota(const QueuedGang& gang, const std::vector<observe::QuotaView>& quotas);

/// Counts the gang as used.
void reserve_quota(const QueuedGang& gang, std::vector<observe::QuotaView>& quotas);

/// How much of a quota's resource ("pods", "requests.cpu") one pod uses; 0 for resources that pods
/// do not use. The planner does not know limits.
std::int64_t quota_use(const observe::Resources& pod, std::string_view resource);

/// One number to compare the shares of queues: accelerators count most, then CPU.
double share_weight(const observe::Resources& amount);

}  // namespace paceline::plan
