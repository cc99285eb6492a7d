// SPDX-License-Identifier: Apache-2.0
// WriteGate: makes a controller read its own writes. After a write for a key, the key is not
// reconciled until the store has seen the version that the write returned. Otherwise a lagging
// cache makes a controller create objects twice.
//
// Thread-safe. The stores must outlive the gate. A key without writes is always open. Nothing here
// fails.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "common/kube/watch/store.hpp"

namespace paceline::kube {

class WriteGate {
 public:
  /// `object` is the answer to a create, update or patch.
  void wrote(const std::string& key, const StoreState& store, std::string_view object);
  void wrote(const std::string& key, const StoreState& store, std::uint64_t resource_version);
  bool open(const std::string& key);
  void forget(const std::string& key);

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, std::map<const StoreState*, std::uint64_t>> waits_;
};

}  // namespace paceline::kube
