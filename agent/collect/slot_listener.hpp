// SPDX-License-Identifier: Apache-2.0
// The socket of one slot: `telemetry.sock` in the folder that is mounted into the container which
// has the slot, so that the path says who speaks.
//
// Ownership: owns the socket; its name stays when it is closed, since running pods have it mounted
// and a successor replaces it. Not thread-safe. Failure: an Error that names the path.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "agent/collect/limits.hpp"
#include "agent/collect/token_bucket.hpp"
#include "common/base/error.hpp"
#include "common/base/unique_fd.hpp"

namespace paceline::agent {

class SlotListener {
 public:
  SlotListener(const CollectLimits& limits, SteadyTime now);

  /// Nothing to do where the socket's name still leads to it. A new one is made beside and renamed:
  /// it listens, open to every user, before it is met.
  Status open(const std::filesystem::path& folder);

  int fd() const { return fd_.get(); }
  /// Whether another connection may be taken now; where not, those that come wait in the kernel,
  /// and cost nothing.
  bool ready(SteadyTime now) { return fd_.valid() && connections_.level(now) >= 1; }
  /// Invalid where nobody waits.
  UniqueFd accept(SteadyTime now);
  /// Of all that comes over this slot.
  bool may_send(SteadyTime now) { return frames_.take(now); }

 private:
  UniqueFd fd_;
  std::string identity_;
  TokenBucket connections_;
  TokenBucket frames_;
};

}  // namespace paceline::agent
