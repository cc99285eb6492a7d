// SPDX-License-Identifier: Apache-2.0
// Text of devices, files and servers for a terminal: a name may hold bytes that a terminal obeys.
// Pure; nothing fails.
#pragma once

#include <algorithm>
#include <string>

namespace paceline {

/// The text with `?` in place of every byte that is not printable ASCII.
inline std::string printable(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c > 0x7e; }, '?');
  return text;
}

}  // namespace paceline
