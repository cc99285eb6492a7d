// SPDX-License-Identifier: Apache-2.0
#include "launcher/diagnosis/collectives.hpp"

#include <algorithm>
#include <map>

namespace paceline::diagnosis {
namespace {

using Members = std::vector<const RankAt*>;

std::uint64_t called(const RankAt* rank) { return rank->live->collective; }

/// The ranks that show each communicator, with a number.
std::map<std::uint64_t, Members> by_communicator(const std::vector<RankAt>& ranks) {
  std::map<std::uint64_t, Members> communicators;
  for (const RankAt& rank : ranks) {
    if (rank.live && rank.live->collective != 0) communicators[rank.live->group].push_back(&rank);
  }
  return communicators;
}

/// The latest collective that a rank waits in; 0 if no rank is known to wait.
std::uint64_t latest_awaited(const Members& members) {
  std::uint64_t latest = 0;
  for (const RankAt* rank : members) latest = std::max(latest, awaited(*rank));
  return latest;
}

bool ends_are_unknown(const Members& members) {
  return std::ranges::all_of(members, [](const RankAt* rank) { return rank->live->done < 0; });
}

template <typename Picks>
void take(Late& late, const Members& members, Picks&& picks) {
  const auto before = late.ranks.size();
  std::ranges::copy_if(members, std::back_inserter(late.ranks), picks);
  if (const auto found = late.ranks.size() - before; found > 0)
    late.waiting += members.size() - found;
}

}  // namespace

std::uint64_t awaited(const RankAt& rank) {
  if (!rank.live || rank.live->done < 0) return 0;
  const auto done = static_cast<std::uint64_t>(rank.live->done);
  return done < rank.live->collective ? done + 1 : 0;
}

std::string shown_collective(std::uint64_t number, const RankAt& rank) {
  const std::uint32_t size = rank.live ? rank.live->group_size : 0;
  return "collective " + std::to_string(number) +
         (size > 0 ? " of a communicator of " + std::to_string(size) + " ranks"
                   : " of its communicator");
}

Late not_called(const std::vector<RankAt>& ranks) {
  Late late;
  for (const auto& [group, members] : by_communicator(ranks)) {
    if (ends_are_unknown(members)) {
      // Hosts run ahead of each other where they wait for other communicators.
      if (members.size() != ranks.size()) continue;
      const auto [least, most] = std::ranges::minmax(members, {}, called);
      if (called(least) == called(most)) continue;
      take(late, members, [&](const RankAt* rank) { return called(rank) == called(least); });
    } else {
      take(late, members, [latest = latest_awaited(members)](const RankAt* rank) {
        return awaited(*rank) == 0 && called(rank) < latest;
      });
    }
  }
  std::ranges::sort(late.ranks, {}, &RankAt::rank);
  return late;
}

Late not_finished(const std::vector<RankAt>& ranks) {
  Late late;
  for (const auto& [group, members] : by_communicator(ranks)) {
    take(late, members, [latest = latest_awaited(members)](const RankAt* rank) {
      return awaited(*rank) != 0 && awaited(*rank) < latest;
    });
  }
  std::ranges::sort(late.ranks, {}, &RankAt::rank);
  return late;
}

}  // namespace paceline::diagnosis
