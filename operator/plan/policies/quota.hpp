// SPDX-License-Identifier: Apache-2.0
// ResourceQuota: a gang that its namespace's quota would cut in half is not started. Scoped quotas
// are left to the API server, which has the last word anyway: a refused create removes the set.
// Pure.
#pragma once

#include <string>
#include <vector>

#include "operator/observe/views.hpp"

namespace paceline::plan {

struct QueuedGang;

/// "quota team-a: pods: 3 needed, 1 of 3 left"; empty when the gang fits.
std::string quota_refusal(const QueuedGang& gang, const std::vector<observe::QuotaView>& quotas);

/// Counts the gang as used.
void reserve_quota(const QueuedGang& gang, std::vector<observe::QuotaView>& quotas);

/// How much of a quota's resource ("pods", "requests.cpu") one pod uses; 0 for what pods do not
/// use. Limits are not known to the planner.
std::int64_t quota_use(const observe::Resources& pod, std::string_view resource);

}  // namespace paceline::plan
