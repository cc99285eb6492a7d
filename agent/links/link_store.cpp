// SPDX-License-Identifier: Apache-2.0
#include "agent/links/link_store.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

namespace paceline::agent {
namespace {

constexpr std::size_t kMostPeers = 32;  // the CRD's bound of the list
constexpr std::chrono::hours kKept{7 * 24};

}  // namespace

void LinkStore::keep(Link link) {
  std::erase_if(links_, [&](const Link& known) { return known.peer == link.peer; });
  // The newest first.
  const auto place =
      std::ranges::upper_bound(links_, link.measured, std::greater(), &Link::measured);
  links_.insert(place, std::move(link));
  if (links_.size() > kMostPeers) links_.resize(kMostPeers);
}

void LinkStore::put(Link link) {
  const std::lock_guard lock(mutex_);
  keep(std::move(link));
  ++changes_;
}

void LinkStore::restore(const nlohmann::json& published) {
  if (!published.is_array()) return;
  const std::lock_guard lock(mutex_);
  for (const auto& entry : published) {
    auto link = read_link_status(entry);
    const auto same = [&](const Link& known) { return known.peer == link->peer; };
    if (link && std::ranges::none_of(links_, same)) keep(std::move(*link));
  }
}

std::vector<Link> LinkStore::latest(WallTime now) const {
  const std::lock_guard lock(mutex_);
  std::vector<Link> links = links_;
  std::erase_if(links, [&](const Link& link) { return now - link.measured > kKept; });
  return links;
}

void LinkStore::reached_at(std::string address) {
  const std::lock_guard lock(mutex_);
  address_ = std::move(address);
}

std::string LinkStore::address() const {
  const std::lock_guard lock(mutex_);
  return address_;
}

std::uint64_t LinkStore::changes() const {
  const std::lock_guard lock(mutex_);
  return changes_;
}

}  // namespace paceline::agent
