// SPDX-License-Identifier: Apache-2.0
#include "loader/pictures/view.hpp"

#include <algorithm>
#include <cmath>

#include "loader/order/random.hpp"

namespace paceline::loader {
namespace {

// Augmentation has its own streams of random numbers, apart from those of orders.
constexpr std::uint64_t kStreams = 1ULL << 63;

// Rounds half to even.
std::int32_t rounded(double value) { return static_cast<std::int32_t>(std::nearbyint(value)); }

// Tries ten random regions. If none fits, it takes the middle of the picture, as wide or as high as
// the bounds allow.
void choose_region(const Framing& framing, std::int32_t width, std::int32_t height, Random& random,
                   View& view) {
  constexpr int kTries = 10;
  const double area = static_cast<double>(width) * height;
  const double logarithms[2] = {std::log(framing.ratio[0]), std::log(framing.ratio[1])};
  for (int i = 0; i < kTries; ++i) {
    const double part =
        area * (framing.scale[0] + (framing.scale[1] - framing.scale[0]) * random.fraction());
    const double ratio =
        std::exp(logarithms[0] + (logarithms[1] - logarithms[0]) * random.fraction());
    const double wide = std::nearbyint(std::sqrt(part * ratio));
    const double high = std::nearbyint(std::sqrt(part / ratio));
    if (!(wide > 0 && wide <= width && high > 0 && high <= height)) continue;
    view.width = static_cast<std::int32_t>(wide);
    view.height = static_cast<std::int32_t>(high);
    view.y = static_cast<std::int32_t>(
        random.below(static_cast<std::uint64_t>(height - view.height) + 1));
    view.x =
        static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(width - view.width) + 1));
    return;
  }
  const double ratio = static_cast<double>(width) / height;
  view.width = width;
  view.height = height;
  if (ratio < framing.ratio[0])
    view.height = std::clamp(rounded(width / framing.ratio[0]), 1, height);
  else if (ratio > framing.ratio[1])
    view.width = std::clamp(rounded(height * framing.ratio[1]), 1, width);
  view.x = (width - view.width) / 2;
  view.y = (height - view.height) / 2;
}

std::int32_t longer(std::int32_t shorter, std::int32_t longer_side, std::int32_t shorter_side) {
  constexpr double kMost = 1 << 30;
  return static_cast<std::int32_t>(
      std::min(static_cast<double>(std::int64_t{shorter} * longer_side) / shorter_side, kMost));
}

}  // namespace

View view_of(const Framing& framing, std::int32_t width, std::int32_t height, std::uint64_t epoch,
             std::uint64_t sample) {
  View view{.x = 0,
            .y = 0,
            .width = width,
            .height = height,
            .full_width = framing.width,
            .full_height = framing.height,
            .left = 0,
            .top = 0,
            .flip = false};
  Random random(framing.seed, epoch, sample ^ kStreams);
  if (framing.crop == Crop::kRandom) choose_region(framing, width, height, random, view);
  if (framing.crop == Crop::kCenter) {
    view.full_width = width <= height ? framing.shorter : longer(framing.shorter, width, height);
    view.full_height = width <= height ? longer(framing.shorter, height, width) : framing.shorter;
    view.left = rounded((view.full_width - framing.width) / 2.0);
    view.top = rounded((view.full_height - framing.height) / 2.0);
  }
  view.flip = random.fraction() < framing.flip;
  return view;
}

int denominator_of(const View& view) {
  const std::int32_t room = std::min(view.width / view.full_width, view.height / view.full_height);
  return room >= 8 ? 8 : room >= 4 ? 4 : room >= 2 ? 2 : 1;
}

View divided(const View& view, int denominator) {
  View result = view;
  result.x = view.x / denominator;
  result.y = view.y / denominator;
  result.width = std::max(view.width / denominator, 1);
  result.height = std::max(view.height / denominator, 1);
  return result;
}

}  // namespace paceline::loader
