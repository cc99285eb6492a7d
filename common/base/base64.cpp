// SPDX-License-Identifier: Apache-2.0
#include "common/base/base64.hpp"

#include <algorithm>
#include <cstdint>

namespace paceline {
namespace {
constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
}  // namespace

Result<std::string> decode_base64(std::string_view text) {
  const auto wrong = [] { return fail(Code::kInvalid, Origin::kConfig, "not base64"); };
  std::string bytes;
  std::uint32_t bits = 0;
  int have = 0;
  bool padded = false;
  for (const char c : text) {
    if (c == '\n' || c == '\r' || c == ' ') continue;
    if (c == '=') {
      padded = true;
      continue;
    }
    const auto value = kAlphabet.find(c);
    if (value == std::string_view::npos || padded) return wrong();
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    have += 6;
    if (have >= 8) {
      have -= 8;
      bytes += static_cast<char>(bits >> have & 0xFF);
    }
  }
  if (have == 6) return wrong();
  return bytes;
}

std::string encode_base64(std::string_view bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    for (std::size_t j = 0; j < 3; ++j)
      group = group << 8 | (j < count ? static_cast<unsigned char>(bytes[i + j]) : 0U);
    for (std::size_t j = 0; j < 4; ++j)
      text += j <= count ? kAlphabet[group >> (18 - 6 * j) & 63] : '=';
  }
  return text;
}

}  // namespace paceline
