// SPDX-License-Identifier: Apache-2.0
// Frames of the rendezvous protocol: a 32-bit big-endian length, then that many bytes of JSON.
// Connection reads and writes them. Pure.
//
// FrameDecoder owns the bytes that it has not returned yet: at most one frame of `limit` bytes and
// what arrived with it. Not thread-safe. Failure: a length of 0 or above the limit. The caller must
// then close the connection.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/error.hpp"

namespace paceline::rendezvous {

inline constexpr std::size_t kHelloLimit = 16 * 1024;     // until the peer has shown the token
inline constexpr std::size_t kMemberLimit = 1024 * 1024;  // from members
// from the server: room for a rank table of 10,000 replicas
inline constexpr std::size_t kServerLimit = 16 * 1024 * 1024;

std::string encode_frame(std::string_view payload);

/// A frame that several connections send at the same time.
using SharedFrame = std::shared_ptr<const std::string>;
inline SharedFrame shared_frame(std::string_view payload) {
  return std::make_shared<const std::string>(encode_frame(payload));
}

class FrameDecoder {
 public:
  explicit FrameDecoder(std::size_t limit) : limit_(limit) {}
  void set_limit(std::size_t limit) { limit_ = limit; }
  void push(std::string_view bytes) { buffer_ += bytes; }
  /// The next complete frame; nullopt until more bytes are pushed.
  Result<std::optional<std::string>> next();

 private:
  std::size_t limit_;
  std::string buffer_;
};

}  // namespace paceline::rendezvous
