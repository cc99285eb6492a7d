// SPDX-License-Identifier: Apache-2.0
// The latest documents of this node, which the agent's loop makes and its server reads.
// Thread-safe; a reader keeps the document that it got while a newer one is stored.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "agent/checks/check.hpp"
#include "agent/links/link.hpp"
#include "common/base/clock.hpp"

namespace paceline::agent {

class Documents {
 public:
  explicit Documents(std::string node_name) : node_name_(std::move(node_name)) {}

  struct Of {
    // as `paceline fabric --json` prints it, with `node`, `observedTime` and `links`
    std::string fabric;
    std::string checks;  // as `paceline doctor --json` prints it, with `node` and `observedTime`
  };
  void put(WallTime now, const Hardware& hardware, const std::vector<Finding>& findings,
           const std::vector<Link>& links = {});
  /// Null before the first probe.
  std::shared_ptr<const Of> latest() const;

 private:
  const std::string node_name_;
  mutable std::mutex mutex_;
  std::shared_ptr<const Of> latest_;
};

}  // namespace paceline::agent
