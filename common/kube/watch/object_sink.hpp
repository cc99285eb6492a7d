// SPDX-License-Identifier: Apache-2.0
// ObjectSink: where a Reflector (or the simulation's feed) puts what it read. Called from one
// thread at a time.
#pragma once

#include <cstdint>
#include <string_view>

#include "common/base/error.hpp"
#include "common/kube/api/api.hpp"

namespace paceline::kube {

class ObjectSink {
 public:
  virtual ~ObjectSink() = default;
  /// A new list begins; what was there stays visible until `end_replace`, which makes the new set
  /// visible at once and reports what is gone as deleted.
  virtual void begin_replace() = 0;
  virtual Status add(std::string_view object) = 0;
  virtual void end_replace(std::uint64_t resource_version) = 0;
  /// A list that failed half-way: forget it.
  virtual void abort_replace() = 0;
  /// One watch event; a bookmark only moves the resource version.
  virtual Status apply(const WatchEvent& event) = 0;
};

}  // namespace paceline::kube
