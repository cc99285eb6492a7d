// SPDX-License-Identifier: Apache-2.0
// Logs once how many ranks the node's agent does not serve. Launcher calls it with every tick.
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>

#include "launcher/log.hpp"

namespace paceline::launcher {

class UnservedRanks {
 public:
  /// `here`: the ranks whose metrics this launcher serves; nullopt: there is no agent.
  void look(const std::optional<std::set<int>>& here, Log& log) {
    const std::size_t count = here ? here->size() : 0;
    if (count > logged_)
      log.line("the node's agent does not take the rings of " + std::to_string(count) +
               " ranks (rank " + std::to_string(*here->begin()) +
               " is the first): their metrics are served here");
    logged_ = count;
  }

 private:
  std::size_t logged_ = 0;
};

}  // namespace paceline::launcher
