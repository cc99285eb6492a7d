// SPDX-License-Identifier: Apache-2.0
// Messages over byte rings: eight bytes of length, then the bytes. Both sides keep how far they
// are, so that a message larger than the ring passes in pieces.
//
// Ownership: none of the memory. Threads: one for each object. Nothing waits, nothing fails but
// allocation (bad_alloc).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/byte_ring.hpp"

namespace paceline::loader {

inline constexpr std::uint64_t kLengthBytes = 8;

// Writes what fits of a message of which `sent` bytes, its length among them, have gone. Whether it
// has gone wholly.
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
  // Takes what is there, and never a byte of the next message. Whether a message is whole; it then
  // begins anew.
  bool read_message(base::ByteRing ring, std::string& message) {
    if (got_ < kLengthBytes) {
      got_ += ring.read(reinterpret_cast<std::byte*>(&length_) + got_, kLengthBytes - got_);
      if (got_ < kLengthBytes) return false;
      body_.clear();
    }
    while (body_.size() < length_) {
      const std::size_t before = body_.size();
      // By what has come, not by what is announced.
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
  std::uint64_t got_ = 0;  // of the length
  std::uint64_t length_ = 0;
  std::string body_;
};

}  // namespace paceline::loader
