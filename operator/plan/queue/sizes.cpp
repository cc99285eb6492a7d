// SPDX-License-Identifier: Apache-2.0
#include "operator/plan/queue/sizes.hpp"

#include <algorithm>

#include "operator/plan/placement/quota.hpp"

namespace paceline::plan {

std::optional<int> largest(int least, int most, const std::function<bool(int)>& fits) {
  if (least > most || !fits(least)) return std::nullopt;
  while (least < most) {
    const int middle = least + (most - least + 1) / 2;
    if (fits(middle)) {
      least = middle;
    } else {
      most = middle - 1;
    }
  }
  return least;
}

QueuedGang with_size(const QueuedGang& gang, int size) {
  QueuedGang sized = gang;
  sized.needs[gang.elastic->need].count = size;
  return sized;
}

QueuedGang pods_to_add(const GrowingGang& gang) {
  QueuedGang more;
  more.id = gang.id;
  more.ns = gang.ns;
  more.needs = {gang.need};
  more.may_grow = gang.may_grow;
  more.held = gang.held;
  return more;
}

std::expected<Grown, Waiting> grow(const GrowingGang& gang, std::vector<Room>& rooms, Stage stage,
                                   std::vector<observe::QuotaView>& quotas) {
  QueuedGang more = pods_to_add(gang);
  Need& need = more.needs.front();
  const Ask ask{
      more.needs, gang.pods_per_node, gang.required, {gang.nodes.begin(), gang.nodes.end()}};
  Waiting why;
  const auto find = [&](int pods) -> std::optional<Placement> {
    need.count = pods;
    why = {"QuotaExceeded", quota_refusal(more, quotas)};
    if (!why.message.empty()) return std::nullopt;
    ++stage.searches;
    auto chosen = place(ask, rooms, stage.topology, stage.allowances);
    if (!chosen) why = {"WaitingForRoom", std::move(chosen.error())};
    return chosen ? std::optional(std::move(*chosen)) : std::nullopt;
  };
  const auto fits = [&](int pods) {
    const auto chosen = find(pods);
    if (!chosen) return false;
    for (const std::size_t room : chosen->rooms) rooms[room].free.add(need.each);
    return true;
  };
  const auto pods = largest(1, gang.need.count, fits);
  const auto chosen = pods ? find(*pods) : std::nullopt;
  if (!chosen) return std::unexpected(why);
  reserve_quota(more, quotas);
  Grown grown;
  std::vector<std::size_t> all;
  for (const std::string& node : gang.nodes) {
    if (const auto room = stage.room_of.find(node); room != stage.room_of.end())
      all.push_back(room->second);
  }
  for (const std::size_t room : chosen->rooms) {
    grown.nodes.push_back(rooms[room].node->meta.name);
    all.push_back(room);
  }
  grown.where = stage.topology.describe(all);
  return grown;
}

}  // namespace paceline::plan
