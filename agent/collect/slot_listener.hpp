// SPDX-License-Identifier: Apache-2.0
// SlotListener: the socket of one slot, `telemetry.sock` in the folder that is mounted into the
// container with the slot. So the path identifies the client. SlotCollector has one for each slot.
//
// Ownership: owns the socket. Its name stays after closing, because running pods have it mounted
// and a successor replaces it. Not thread-safe. Failure is an Error that names the path.
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

  /// Does nothing if the socket's name still leads to it. A new socket is made beside and renamed
  /// after it listens and is open to every user.
  Status open(const std::filesystem::path& folder);

  int fd() const { return fd_.get(); }
  /// Whether another connection may be accepted now. Otherwise clients wait in the kernel at no
  /// cost.
  bool ready(SteadyTime now) { return fd_.valid() && connections_.level(now) >= 1; }
  /// Returns an invalid descriptor if no client waits.
  UniqueFd accept(SteadyTime now);
  /// Counts one frame against the limit of this slot.
  bool may_send(SteadyTime now) { return frames_.take(now); }

 private:
  UniqueFd fd_;
  std::string identity_;
  TokenBucket connections_;
  TokenBucket frames_;
};

}  // namespace paceline::agent
