// SPDX-License-Identifier: Apache-2.0
// What this node says of its links: where its agent is reached, and the latest measurement of the
// way to each of the 32 peers that were measured last. One measured more than a week ago is
// forgotten.
//
// Thread-safe: written by the API's threads, read by the agent's loop. Nothing fails.
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
  /// What an earlier life of the agent published (`status.links`), where this one knows nothing
  /// newer.
  void restore(const nlohmann::json& published);
  /// The newest first.
  std::vector<Link> latest(WallTime now) const;

  void reached_at(std::string address);
  std::string address() const;

  /// Another number after every change.
  std::uint64_t changes() const;

 private:
  void keep(Link link);

  mutable std::mutex mutex_;
  std::vector<Link> links_;
  std::string address_;
  std::uint64_t changes_ = 0;
};

}  // namespace paceline::agent
