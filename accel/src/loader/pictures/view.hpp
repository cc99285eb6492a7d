// SPDX-License-Identifier: Apache-2.0
// What of a picture is delivered: a region, resized, a window of that, mirrored or not. A pure
// function of the picture's size and of the numbers below, so a sample of an epoch looks the same
// on every machine and whoever decodes it. Sizes and roundings are torchvision's.
//
// Ownership: none. Threads: pure. Failure: none; sizes are positive.
#pragma once

#include <cstdint>

namespace paceline::loader {

enum class Crop : std::uint32_t { kNone, kRandom, kCenter };

struct Framing {
  Crop crop = Crop::kNone;
  std::int32_t width = 0;  // of what is delivered
  std::int32_t height = 0;
  std::int32_t shorter =
      // kCenter: the picture's shorter side becomes this, then the window is cut out; not below
      // width and height
      0;
  double scale[2] = {0.08, 1.0};        // kRandom: part of the picture's area
  double ratio[2] = {0.75, 4.0 / 3.0};  // kRandom: width over height
  double flip = 0;                      // how likely it is mirrored
  std::uint64_t seed = 0;
};

struct View {
  // The region: it is resized as a picture of its own, nothing outside is seen.
  std::int32_t x = 0;
  std::int32_t y = 0;
  std::int32_t width = 0;
  std::int32_t height = 0;
  // What it is resized to, and where in that the delivered window begins.
  std::int32_t full_width = 0;
  std::int32_t full_height = 0;
  std::int32_t left = 0;
  std::int32_t top = 0;
  bool flip = false;
};

View view_of(const Framing& framing, std::int32_t width, std::int32_t height, std::uint64_t epoch,
             std::uint64_t sample);

// 8, 4, 2 or 1: by how much the decoder may divide the picture's sides so that the region stays at
// least as large as it is resized to.
int denominator_of(const View& view);
// The same view of the picture whose sides are divided.
View divided(const View& view, int denominator);

}  // namespace paceline::loader
