// SPDX-License-Identifier: Apache-2.0
// Frames of the rendezvous protocol: a 32-bit big-endian length, then that many bytes of JSON.
// Pure.
//
// FrameDecoder owns what it has received and not yet given out, never more than one frame of
// `limit` bytes plus what came with it. Not thread-safe. Failure: a length of 0 or above the limit;
// the connection it came from must be closed.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/error.hpp"

namespace paceline::rendezvous {

inline constexpr std::size_t kHelloLimit = 16 * 1024;     // before the token was shown
inline constexpr std::size_t kMemberLimit = 1024 * 1024;  // from members
// from the server: a rank table of 10,000 replicas
inline constexpr std::size_t kServerLimit = 16 * 1024 * 1024;

std::string encode_frame(std::string_view payload);

class FrameDecoder {
 public:
  explicit FrameDecoder(std::size_t limit) : limit_(limit) {}
  void set_limit(std::size_t limit) { limit_ = limit; }
  void push(std::string_view bytes) { buffer_ += bytes; }
  /// The next whole frame, or nothing until more bytes are pushed.
  Result<std::optional<std::string>> next();

 private:
  std::size_t limit_;
  std::string buffer_;
};

}  // namespace paceline::rendezvous
