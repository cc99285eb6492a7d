// SPDX-License-Identifier: Apache-2.0
// FrameDecoder: cuts the byte stream of a watch into events. An event may span chunks, and a chunk
// may hold many events.
//
// Ownership: a view passed to the handler is valid until the handler returns. Used by one thread.
// Memory: one unfinished event of at most `max_bytes`. A larger event is kExhausted, text that is
// not an event kInvalid; an ERROR event returns its own error.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "common/base/error.hpp"
#include "common/kube/api/api.hpp"

namespace paceline::kube {

class FrameDecoder {
 public:
  explicit FrameDecoder(std::size_t max_bytes) : max_bytes_(max_bytes) {}

  /// True to continue; false if the handler wants no more events.
  Result<bool> feed(std::string_view chunk, const WatchHandler& handler);
  /// The size of the unfinished event. If it is not 0 at the end of the stream, the event was cut
  /// off.
  std::size_t unfinished() const { return partial_.size(); }

 private:
  Result<bool> event(std::string_view line, const WatchHandler& handler);

  const std::size_t max_bytes_;
  std::string partial_;
};

}  // namespace paceline::kube
