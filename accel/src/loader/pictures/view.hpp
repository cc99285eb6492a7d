// SPDX-License-Identifier: Apache-2.0
// Chooses the part of a picture that is delivered: a region is resized, a window of the result is
// cut out, and it may be mirrored. The view is a pure function of the size of the picture and the
// settings below. So a sample of an epoch looks the same on every machine and in every process.
// Sizes and roundings equal torchvision's.
//
// Ownership: none. Threads: pure. Failure: none; sizes are positive.
#pragma once

#include <cstdint>

namespace paceline::loader {

enum class Crop : std::uint32_t { kNone, kRandom, kCenter };

struct Framing {
  Crop crop = Crop::kNone;
  std::int32_t width = 0;  // of the delivered picture
  std::int32_t height = 0;
  std::int32_t shorter =
      // kCenter: the shorter side is resized to this, then the window is cut out. It is at least
      // width and height.
      0;
  double scale[2] = {0.08, 1.0};        // kRandom: fraction of the picture's area
  double ratio[2] = {0.75, 4.0 / 3.0};  // kRandom: width over height
  double flip = 0;                      // probability that it is mirrored
  std::uint64_t seed = 0;
};

struct View {
  // The region. It is resized as if it were a whole picture: no pixel outside it counts.
  std::int32_t x = 0;
  std::int32_t y = 0;
  std::int32_t width = 0;
  std::int32_t height = 0;
  // The size that the region is resized to, and where the delivered window begins in it.
  std::int32_t full_width = 0;
  std::int32_t full_height = 0;
  std::int32_t left = 0;
  std::int32_t top = 0;
  bool flip = false;
};

View view_of(const Framing& framing, std::int32_t width, std::int32_t height, std::uint64_t epoch,
             std::uint64_t sample);

// Returns 8, 4, 2 or 1: the largest number by which the decoder may divide the sides of the
// picture. The region then stays at least as large as the size that it is resized to.
int denominator_of(const View& view);
// Returns the same view of a picture whose sides are divided.
View divided(const View& view, int denominator);

}  // namespace paceline::loader
