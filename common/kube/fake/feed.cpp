// SPDX-License-Identifier: Apache-2.0
#include "common/base/log.hpp"

#include "common/kube/fake/cluster.hpp"

namespace paceline::kube {

FakeFeed::FakeFeed(const FakeCluster& cluster, const Resource& resource, ObjectSink& sink)
    : cluster_(cluster), resource_(resource), sink_(sink) {}

void FakeFeed::relist() {
  // Read the version first. There is one thread and no writer in between, so it is the list's
  // version.
  resource_version_ = cluster_.resource_version();
  sink_.begin_replace();
  for (const std::string& object : cluster_.objects(resource_)) {
    if (const auto added = sink_.add(object); !added)
      spdlog::warn("{}: {}", resource_.plural, to_string(added.error()));
  }
  sink_.end_replace(resource_version_);
}

std::size_t FakeFeed::deliver(std::size_t count) {
  const auto changes = cluster_.changes_since(resource_, resource_version_);
  if (!changes) {
    relist();
    return 1;
  }
  std::size_t delivered = 0;
  for (const auto& change : *changes) {
    if (delivered == count) return delivered;
    resource_version_ = change.resource_version;
    ++delivered;
    if (const auto applied = sink_.apply({change.type, change.object}); !applied)
      spdlog::warn("{}: {}", resource_.plural, to_string(applied.error()));
  }
  return delivered;
}

std::size_t FakeFeed::pending() const {
  const auto changes = cluster_.changes_since(resource_, resource_version_);
  return changes ? changes->size() : 1;
}

}  // namespace paceline::kube
