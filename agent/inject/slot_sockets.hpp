// SPDX-License-Identifier: Apache-2.0
// The sockets in the slots' folders, as an interface for Injector, which makes sure that each slot
// has its socket and passes on the kubelet's answer on who owns which slot. SlotCollector
// implements it.
//
// The injector's thread calls it; `open` is also called by the threads that answer the kubelet.
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

  /// Makes the socket in a slot's folder, or finds it there. The socket listens before it has its
  /// name.
  virtual Status open(const std::string& slot, const std::filesystem::path& folder) = 0;
  /// True if a client waits whose pod is not known yet.
  virtual bool asks() const = 0;
  /// The kubelet's answer to a question sent at the time `asked`.
  virtual void tell(const SlotPods& pods, SteadyTime asked) = 0;
};

}  // namespace paceline::agent
