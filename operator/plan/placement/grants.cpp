// SPDX-License-Identifier: Apache-2.0
#include "operator/plan/placement/grants.hpp"

#include <algorithm>
#include <utility>

namespace paceline::plan {

void add_grant(Constraints& constraints, const api::PodGrant& grant) {
  constraints.selector.insert(constraints.selector.end(), grant.node_selector.begin(),
                              grant.node_selector.end());
  const auto added = read_constraints({{"tolerations", grant.tolerations}}).tolerations;
  constraints.tolerations.insert(constraints.tolerations.end(), added.begin(), added.end());
}

std::vector<Need> with_grants(std::vector<Need> needs, const std::vector<api::PodGrant>& grants) {
  if (grants.size() != needs.size()) return needs;
  std::vector<Need> limited;
  for (std::size_t role = 0; role < needs.size(); ++role) {
    Need need = std::move(needs[role]);
    const api::PodGrant& grant = grants[role];
    add_grant(need.constraints, grant);
    if (grant.pods) need.count = std::min(need.count, *grant.pods);
    int left = need.count;
    for (const api::PodShare& share : grant.shares) {
      Need part = need;
      part.count = std::min(share.pods, left);
      left -= part.count;
      part.constraints.selector.insert(part.constraints.selector.end(), share.labels.begin(),
                                       share.labels.end());
      if (part.count > 0) limited.push_back(std::move(part));
    }
    // Without an assignment, or if it is for fewer pods than the role has.
    need.count = left;
    if (left > 0) limited.push_back(std::move(need));
  }
  return limited;
}

}  // namespace paceline::plan
