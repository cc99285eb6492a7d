// SPDX-License-Identifier: Apache-2.0
// ObjectSink: receives what a Reflector (or the simulation's feed) reads. Called by one thread at a
// time.
#pragma once

#include <cstdint>
#include <string_view>

#include "common/base/error.hpp"
#include "common/kube/api/api.hpp"

namespace paceline::kube {

class ObjectSink {
 public:
  virtual ~ObjectSink() = default;
  /// A new list begins. The old objects stay visible until `end_replace`, which makes the new set
  /// visible at once and reports missing objects as deleted.
  virtual void begin_replace() = 0;
  virtual Status add(std::string_view object) = 0;
  virtual void end_replace(std::uint64_t resource_version) = 0;
  /// The list failed before its end: discard it.
  virtual void abort_replace() = 0;
  /// Applies one watch event. A bookmark only advances the resource version.
  virtual Status apply(const WatchEvent& event) = 0;
};

}  // namespace paceline::kube
