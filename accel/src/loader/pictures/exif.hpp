// SPDX-License-Identifier: Apache-2.0
// How a JPEG file's picture is to be turned, as its EXIF data say. Pure; believes nothing: what is
// not understood is 1, as it is.
#pragma once

#include <cstdint>
#include <span>

namespace paceline::loader {

// 1 to 8, as EXIF numbers them. 5 to 8 exchange width and height.
int orientation_of(std::span<const std::uint8_t> file);

}  // namespace paceline::loader
