// SPDX-License-Identifier: Apache-2.0
// FrameDecoder: cuts the byte stream of a watch into events. Events may be split over chunks, and a
// chunk may hold many.
//
// Ownership: the views it hands out live until the callback returns. One thread. Memory: one
// unfinished event, at most `max_bytes`; a larger one is kExhausted, text that is no event
// kInvalid, an ERROR event the error it carries.
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

  /// True to go on, false when the handler wants no more.
  Result<bool> feed(std::string_view chunk, const WatchHandler& handler);
  /// Bytes of an unfinished event: at the end of a stream it was cut off.
  std::size_t unfinished() const { return partial_.size(); }

 private:
  Result<bool> event(std::string_view line, const WatchHandler& handler);

  const std::size_t max_bytes_;
  std::string partial_;
};

}  // namespace paceline::kube
