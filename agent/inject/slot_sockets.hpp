// SPDX-License-Identifier: Apache-2.0
// What stands behind the sockets in the slots' folders, as the injector meets it: it sees to it
// that each slot has its socket, and brings the kubelet's word on whose slot is whose.
//
// Called by the injector's thread and, `open`, by those that answer the kubelet.
#pragma once

#include <filesystem>
#include <string>

#include "agent/inject/kubelet.hpp"
#include "common/base/clock.hpp"
#include "common/base/error.hpp"

namespace paceline::agent {

class SlotSockets {
 public:
  virtual ~SlotSockets() = default;

  /// Makes the socket in a slot's folder, or finds that it is there still. Whoever meets it meets
  /// one that listens.
  virtual Status open(const std::string& slot, const std::filesystem::path& folder) = 0;
  /// Somebody has come whose pod is not known yet.
  virtual bool asks() const = 0;
  /// The kubelet's answer to a question asked at that time.
  virtual void tell(const SlotPods& pods, SteadyTime asked) = 0;
};

}  // namespace paceline::agent
