// SPDX-License-Identifier: Apache-2.0
// What a FakeCluster is told (faults) and what it tells (changes, counts). Values.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "common/kube/api/api.hpp"

namespace paceline::kube {

/// A fault that a test injects into one request.
struct Fault {
  // Answer with this status and do nothing (429, 500, …).
  int status = 0;
  std::optional<int> retry_after_seconds{};  // sent with the status
  bool drop_after_apply = false;             // apply the request, then lose the answer
  std::string message{};                     // of the Status; empty: a standard message
  std::string body{};                        // in place of a Status, as of a path that is not known
};

/// One change, as an observer sees it.
struct FakeSight {
  const Resource& resource;
  WatchEventType type;
  std::uint64_t resource_version;
  const nlohmann::json* before;  // null: the object is new
  const nlohmann::json& object;  // of a deletion: the last state
  const std::shared_ptr<const std::string>& text;
};

/// Applied requests. A write that changes nothing counts too.
struct FakeCounts {
  std::uint64_t creates = 0, updates = 0, patches = 0, deletes = 0, reads = 0;
  std::uint64_t writes() const { return creates + updates + patches + deletes; }
};

}  // namespace paceline::kube
