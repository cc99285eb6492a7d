// SPDX-License-Identifier: Apache-2.0
// Base64 as Secrets use it (RFC 4648, padded). Pure; decoding stops at the first byte that does not
// belong.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace paceline::render {

inline constexpr std::string_view kBase64 =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

inline std::string encode_base64(std::string_view bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k)
      group =
          (group << 8U) | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    for (std::size_t k = 0; k < 4; ++k)
      text += i + k <= bytes.size() ? kBase64[(group >> (18U - 6U * k)) & 63U] : '=';
  }
  return text;
}

inline std::string decode_base64(std::string_view text) {
  std::string bytes;
  std::uint32_t group = 0;
  unsigned bits = 0;
  for (const char c : text) {
    const std::size_t digit = kBase64.find(c);
    if (digit == std::string_view::npos) break;
    group = (group << 6U) | static_cast<std::uint32_t>(digit);
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      bytes += static_cast<char>((group >> bits) & 255U);
    }
  }
  return bytes;
}

}  // namespace paceline::render
