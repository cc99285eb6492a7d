// SPDX-License-Identifier: Apache-2.0
// Messages over byte rings: eight bytes of length, then the bytes. Both sides store their progress,
// so a message larger than the ring passes in pieces.
//
// Ownership: owns none of the memory. Threads: one thread for each object. Nothing waits. Failure:
// bad_alloc only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/byte_ring.hpp"

namespace paceline::loader {

inline constexpr std::uint64_t kLengthBytes = 8;

// Writes as much of a message as fits. `sent` counts the bytes already written, those of the length
// included. Returns true once the whole message is written.
inline bool write_message(base::ByteRing ring, const void* data, std::uint64_t size,
                          std::uint64_t& sent) {
  if (sent < kLengthBytes) {
    const auto* length = reinterpret_cast<const std::byte*>(&size);
    sent += ring.write(length + sent, kLengthBytes - sent);
  }
  if (sent >= kLengthBytes) {
    const std::uint64_t done = sent - kLengthBytes;
    sent += ring.write(static_cast<const std::byte*>(data) + done, size - done);
  }
  return sent == kLengthBytes + size;
}

class Inbox {
 public:
  // Reads the available bytes, but never a byte of the next message. Returns true if a message is
  // complete; the inbox is then ready for the next one.
  bool read_message(base::ByteRing ring, std::string& message) {
    if (got_ < kLengthBytes) {
      got_ += ring.read(reinterpret_cast<std::byte*>(&length_) + got_, kLengthBytes - got_);
      if (got_ < kLengthBytes) return false;
      body_.clear();
    }
    while (body_.size() < length_) {
      const std::size_t before = body_.size();
      // Grow by the bytes that arrived, not by the announced length, which may be wrong.
      body_.resize(before + static_cast<std::size_t>(
                                std::min<std::uint64_t>(length_ - before, ring.readable())));
      if (ring.read(reinterpret_cast<std::byte*>(body_.data()) + before, body_.size() - before) ==
          0)
        return false;
    }
    message.swap(body_);
    got_ = 0;
    return true;
  }

 private:
  std::uint64_t got_ = 0;  // bytes read of the length
  std::uint64_t length_ = 0;
  std::string body_;
};

}  // namespace paceline::loader
