// SPDX-License-Identifier: Apache-2.0
#include "common/base/excerpt.hpp"

#include <algorithm>

namespace paceline {
namespace {

/// The length in bytes of the character that the text begins with; 0: it is not UTF-8.
std::size_t character(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xC2 && lead <= 0xDF   ? 2
                             : lead >= 0xE0 && lead <= 0xEF ? 3
                             : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                            : 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80) return 0;
  }
  // Longer forms than needed, halves of UTF-16 pairs, and numbers beyond the last character.
  const unsigned second = byte(1);
  const bool refused = (lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
                       (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F);
  return refused ? 0 : length;
}

}  // namespace

std::string excerpt(std::string_view whole, std::size_t most) {
  std::string text;
  text.reserve(std::min(whole.size(), most));
  while (!whole.empty()) {
    const std::size_t length = character(whole);
    const std::size_t taken = std::max<std::size_t>(length, 1);
    if (text.size() + taken > most) break;
    if (length == 0) {
      text += '?';
    } else {
      text += whole.substr(0, length);
    }
    whole.remove_prefix(taken);
  }
  return text;
}

}  // namespace paceline
