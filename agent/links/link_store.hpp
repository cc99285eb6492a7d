// SPDX-License-Identifier: Apache-2.0
// The measured links of this node and the agent's own address, for the NodeFabric. Holds the latest
// measurement for each of the 32 peers measured last. A measurement older than a week is dropped.
//
// Thread-safe: the API's threads write, the agent's loop reads. Nothing fails.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "agent/links/link.hpp"

namespace paceline::agent {

class LinkStore {
 public:
  void put(Link link);
  /// Restores links that an earlier agent published (`status.links`), unless this one has newer
  /// ones.
  void restore(const nlohmann::json& published);
  /// The newest first.
  std::vector<Link> latest(WallTime now) const;

  void reached_at(std::string address);
  std::string address() const;

  /// Changes with every modification.
  std::uint64_t changes() const;

 private:
  void keep(Link link);

  mutable std::mutex mutex_;
  std::vector<Link> links_;
  std::string address_;
  std::uint64_t changes_ = 0;
};

}  // namespace paceline::agent
