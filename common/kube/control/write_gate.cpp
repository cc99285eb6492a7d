// SPDX-License-Identifier: Apache-2.0
#include "common/kube/control/write_gate.hpp"

#include <algorithm>

#include "common/kube/api/object_version.hpp"

namespace paceline::kube {

void WriteGate::wrote(const std::string& key, const StoreState& store, std::string_view object) {
  wrote(key, store, version_of(object));
}

void WriteGate::wrote(const std::string& key, const StoreState& store,
                      std::uint64_t resource_version) {
  // Zero: the answer had no version (a Status, a dry run), so there is nothing to wait for.
  if (resource_version == 0 || store.resource_version() >= resource_version) return;
  const std::lock_guard lock(mutex_);
  auto& version = waits_[key][&store];
  version = std::max(version, resource_version);
}

bool WriteGate::open(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto found = waits_.find(key);
  if (found == waits_.end()) return true;
  std::erase_if(found->second,
                [](const auto& wait) { return wait.first->resource_version() >= wait.second; });
  if (!found->second.empty()) return false;
  waits_.erase(found);
  return true;
}

void WriteGate::forget(const std::string& key) {
  const std::lock_guard lock(mutex_);
  waits_.erase(key);
}

}  // namespace paceline::kube
