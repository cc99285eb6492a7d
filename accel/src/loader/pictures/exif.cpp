// SPDX-License-Identifier: Apache-2.0
#include "loader/pictures/exif.hpp"

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace paceline::loader {
namespace {

using Bytes = std::span<const std::uint8_t>;

// Reads a number of `size` bytes. Returns 0 if it lies outside.
std::uint32_t number_at(Bytes bytes, std::size_t at, std::size_t size, bool little) {
  if (at > bytes.size() || size > bytes.size() - at) return 0;
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < size; ++i)
    value = value << 8 | bytes[at + (little ? size - 1 - i : i)];
  return value;
}

bool begins_with(Bytes bytes, std::string_view text) {
  return bytes.size() >= text.size() &&
         std::equal(text.begin(), text.end(), bytes.begin(),
                    [](char a, std::uint8_t b) { return static_cast<std::uint8_t>(a) == b; });
}

// Reads the orientation from the first directory of a TIFF header.
int orientation_in(Bytes tiff) {
  constexpr std::uint32_t kOrientation = 0x0112;
  constexpr std::uint32_t kShort = 3;
  const bool little = begins_with(tiff, "II");
  if (!little && !begins_with(tiff, "MM")) return 1;
  const std::size_t directory = number_at(tiff, 4, 4, little);
  const std::uint32_t entries = number_at(tiff, directory, 2, little);
  for (std::uint32_t i = 0; i < entries; ++i) {
    const std::size_t entry = directory + 2 + std::size_t{12} * i;
    if (entry + 12 > tiff.size()) return 1;
    if (number_at(tiff, entry, 2, little) != kOrientation) continue;
    if (number_at(tiff, entry + 2, 2, little) != kShort) return 1;
    const std::uint32_t value = number_at(tiff, entry + 8, 2, little);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

}  // namespace

int orientation_of(std::span<const std::uint8_t> file) {
  using namespace std::string_view_literals;
  constexpr std::string_view kExif = "Exif\0\0"sv;
  std::size_t at = 2;
  while (at + 4 <= file.size() && file[at] == 0xFF) {
    const std::uint8_t marker = file[at + 1];
    if (marker == 0xFF) {  // a fill byte
      ++at;
      continue;
    }
    if (marker == 0xDA || marker == 0xD9) break;  // pixels follow, or the file ends
    const std::size_t length = number_at(file, at + 2, 2, false);
    if (length < 2 || length > file.size() - at - 2) break;
    const Bytes content = file.subspan(at + 4, length - 2);
    if (marker == 0xE1 && begins_with(content, kExif))
      return orientation_in(content.subspan(kExif.size()));
    at += 2 + length;
  }
  return 1;
}

}  // namespace paceline::loader
