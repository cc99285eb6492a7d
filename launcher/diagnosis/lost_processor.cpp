// SPDX-License-Identifier: Apache-2.0
#include "launcher/diagnosis/lost_processor.hpp"

#include <utility>

namespace paceline::diagnosis {
namespace {

LostReason reason(const RankWindow& rank, const std::string& who) {
  if (rank.throttled > kLostShare)
    return {who + " was held at the container's CPU limit for " + shown_share(rank.throttled) +
                " of the time.",
            "Raise the CPU limit of the container, or use fewer loader workers and threads."};
  if (rank.stolen > kLostShare)
    return {"The hypervisor gave " + shown_share(rank.stolen) + " of the processors of " + who +
                " to other machines.",
            "Use machines with processors of their own."};
  return {who + " was ready to run and had no processor for " + shown_share(rank.waited) +
              " of the time.",
          "Other programs or too many threads take the processors: give the pod whole CPUs of its "
          "own, or use fewer loader workers."};
}

}  // namespace

std::optional<LostReason> lost_processor(const Windows& windows, const RankWindow& rank) {
  const auto beyond = [&](double RankWindow::* share) {
    return rank.*share > kLostShare &&
           rank.*share - median_of(windows, [&](const RankWindow& each) { return each.*share; }) >
               kLostShare / 2;
  };
  if (!beyond(&RankWindow::waited) && !beyond(&RankWindow::throttled) &&
      !beyond(&RankWindow::stolen))
    return std::nullopt;
  return reason(rank, "It");
}

std::optional<Finding> lost_by_all(const Windows& windows) {
  RankWindow usual;
  usual.waited = median_of(windows, [](const RankWindow& each) { return each.waited; });
  usual.throttled = median_of(windows, [](const RankWindow& each) { return each.throttled; });
  usual.stolen = median_of(windows, [](const RankWindow& each) { return each.stolen; });
  if (usual.waited <= kLostShare && usual.throttled <= kLostShare && usual.stolen <= kLostShare)
    return std::nullopt;
  LostReason why = reason(usual, "The median rank");
  Finding finding{.kind = Kind::kProcessor};
  finding.text = std::move(why.text);
  finding.advice = std::move(why.advice);
  return finding;
}

}  // namespace paceline::diagnosis
