// SPDX-License-Identifier: Apache-2.0
#include "operator/plan/placement/quota.hpp"

#include "common/contract/accelerators.hpp"

namespace paceline::plan {
namespace {

std::int64_t gang_use(const QueuedGang& gang, std::string_view resource) {
  std::int64_t sum = 0;
  for (const Need& need : gang.needs) sum += quota_use(need.each, resource) * need.count;
  return sum;
}

std::string shown(std::int64_t milli) {
  std::string text = std::to_string(milli / 1000);
  if (milli % 1000 != 0) text = std::to_string(milli) + "m";
  return text;
}

}  // namespace

std::int64_t quota_use(const observe::Resources& pod, std::string_view resource) {
  if (resource == "count/pods") resource = "pods";
  if (resource.starts_with("requests.")) resource.remove_prefix(9);
  if (resource.starts_with("limits.") || resource.starts_with("count/")) return 0;
  return pod.get(resource);
}

std::string quota_refusal(const QueuedGang& gang, const std::vector<observe::QuotaView>& quotas) {
  for (const observe::QuotaView& quota : quotas) {
    if (quota.scoped) continue;
    for (const auto& [resource, hard] : quota.hard) {
      const std::int64_t need = gang_use(gang, resource);
      std::int64_t used = 0;
      for (const auto& [name, amount] : quota.used) {
        if (name == resource) used = amount;
      }
      if (need > 0 && need > hard - used) {
        return "quota " + quota.meta.name + ": " + resource + ": " + shown(need) + " needed, " +
               shown(std::max<std::int64_t>(0, hard - used)) + " of " + shown(hard) + " left";
      }
    }
  }
  return "";
}

std::string impossible_quota(const QueuedGang& gang,
                             const std::vector<observe::QuotaView>& quotas) {
  for (const observe::QuotaView& quota : quotas) {
    if (quota.scoped) continue;
    for (const auto& [resource, hard] : quota.hard) {
      const std::int64_t need = gang_use(gang, resource);
      if (need > hard)
        return "quota " + quota.meta.name + ": " + resource + ": " + shown(need) + " needed, of " +
               shown(hard) + " in all; ask for less, or raise the quota";
    }
  }
  return "";
}

void reserve_quota(const QueuedGang& gang, std::vector<observe::QuotaView>& quotas) {
  for (observe::QuotaView& quota : quotas) {
    for (const auto& [resource, hard] : quota.hard) {
      const std::int64_t need = gang_use(gang, resource);
      if (need == 0) continue;
      bool found = false;
      for (auto& [name, amount] : quota.used) {
        if (name == resource) {
          amount += need;
          found = true;
        }
      }
      if (!found) quota.used.emplace_back(resource, need);
    }
  }
}

double share_weight(const observe::Resources& amount) {
  double sum = static_cast<double>(amount.cpu) / 1000.0;
  for (const auto& [name, milli] : amount.other) {
    // Neither a network device nor the runtime's slot is one, and pods have those beside it.
    if (contract::is_accelerator_resource(name)) sum += static_cast<double>(milli) / 1000.0 * 16.0;
  }
  return sum;
}

}  // namespace paceline::plan
