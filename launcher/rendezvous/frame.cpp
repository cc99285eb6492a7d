// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/frame.hpp"

#include <cstdint>

namespace paceline::rendezvous {
namespace {

constexpr std::size_t kHeader = 4;

}  // namespace

std::string encode_frame(std::string_view payload) {
  const auto size = static_cast<std::uint32_t>(payload.size());
  std::string frame;
  frame.reserve(kHeader + payload.size());
  for (int shift = 24; shift >= 0; shift -= 8) frame += static_cast<char>((size >> shift) & 0xffu);
  frame += payload;
  return frame;
}

Result<std::optional<std::string>> FrameDecoder::next() {
  if (buffer_.size() < kHeader) return std::optional<std::string>();
  std::size_t size = 0;
  for (std::size_t i = 0; i < kHeader; ++i)
    size = size << 8 | static_cast<unsigned char>(buffer_[i]);
  if (size == 0 || size > limit_) {
    return fail(Code::kInvalid, Origin::kProtocol,
                "a frame of " + std::to_string(size) + " bytes is not between 1 and " +
                    std::to_string(limit_));
  }
  if (buffer_.size() < kHeader + size) return std::optional<std::string>();
  std::string payload = buffer_.substr(kHeader, size);
  buffer_.erase(0, kHeader + size);
  return std::optional<std::string>(std::move(payload));
}

}  // namespace paceline::rendezvous
