// SPDX-License-Identifier: Apache-2.0
// Which failure is to be told now: each attempt's once, also after the gang has restarted, since a
// restart in place takes less than a second.
//
// One thread. Nothing fails.
#pragma once

#include <optional>

#include "launcher/rendezvous/gang.hpp"

namespace paceline::launcher {

class FailureNews {
 public:
  /// nullopt while there is nothing new, or members may still report an earlier failure.
  std::optional<rendezvous::Culprit> next(const rendezvous::Gang& gang) {
    auto culprit = gang.culprit();
    if (!culprit || culprit->attempt == told_) return std::nullopt;
    if (gang.phase() == rendezvous::GangPhase::kSucceeded) return std::nullopt;
    if (!gang.finished() && gang.weighs_failures()) return std::nullopt;
    told_ = culprit->attempt;
    return culprit;
  }

 private:
  int told_ = -1;  // of this attempt
};

}  // namespace paceline::launcher
