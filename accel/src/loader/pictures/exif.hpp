// SPDX-License-Identifier: Apache-2.0
// Reads the orientation of a picture from the EXIF data of a JPEG file. Pure. If the data cannot be
// understood, the orientation is 1, the picture as it is.
#pragma once

#include <cstdint>
#include <span>

namespace paceline::loader {

// Returns 1 to 8, as EXIF numbers orientations. 5 to 8 exchange width and height.
int orientation_of(std::span<const std::uint8_t> file);

}  // namespace paceline::loader
