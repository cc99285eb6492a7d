// SPDX-License-Identifier: Apache-2.0
#include "loader/pictures/resample.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/simd.hpp"

namespace paceline::loader {
namespace {

double box(double x) { return x > -0.5 && x <= 0.5 ? 1.0 : 0.0; }

double triangle(double x) {
  x = std::fabs(x);
  return x < 1.0 ? 1.0 - x : 0.0;
}

double hamming(double x) {
  x = std::fabs(x);
  if (x == 0.0) return 1.0;
  if (x >= 1.0) return 0.0;
  x *= std::numbers::pi;
  return std::sin(x) / x * (0.54 + 0.46 * std::cos(x));
}

// Catmull-Rom: Keys' family with a = -1/2.
double cubic(double x) {
  constexpr double kA = -0.5;
  x = std::fabs(x);
  if (x < 1.0) return ((kA + 2.0) * x - (kA + 3.0)) * x * x + 1.0;
  if (x < 2.0) return (((x - 5.0) * x + 8.0) * x - 4.0) * kA;
  return 0.0;
}

double sinc(double x) {
  if (x == 0.0) return 1.0;
  x *= std::numbers::pi;
  return std::sin(x) / x;
}

double lanczos(double x) { return x >= -3.0 && x < 3.0 ? sinc(x) * sinc(x / 3.0) : 0.0; }

struct Shape {
  double (*weight)(double);
  double support;
};

Shape shape_of(Filter filter) {
  switch (filter) {
    case Filter::kBox: return {box, 0.5};
    case Filter::kHamming: return {hamming, 1.0};
    case Filter::kBicubic: return {cubic, 2.0};
    case Filter::kLanczos: return {lanczos, 3.0};
    case Filter::kBilinear: break;
  }
  return {triangle, 1.0};
}

// Rounds half away from zero.
std::int32_t whole(double weight) {
  const double scaled = weight * (1 << kWeightBits);
  return static_cast<std::int32_t>(weight < 0 ? scaled - 0.5 : scaled + 0.5);
}

// Truncates towards zero, also negative values, as Pillow does.
std::int32_t pixel_at(double place) {
  const double shifted = place + 0.5;
  return static_cast<std::int32_t>(shifted);
}

std::uint8_t byte_of(std::int32_t sum) {
  return static_cast<std::uint8_t>(std::clamp(sum >> kWeightBits, 0, 255));
}

constexpr std::int32_t kHalf = 1 << (kWeightBits - 1);

void no_preparation(Axis&) {}

void horizontal(const Axis& axis, const std::uint8_t* source, std::size_t source_stride,
                std::size_t rows, std::uint8_t* target, std::size_t target_stride) {
  for (std::size_t row = 0; row < rows; ++row, source += source_stride, target += target_stride) {
    for (std::size_t pixel = 0; pixel < axis.reach.size(); ++pixel) {
      const Axis::Reach reach = axis.reach[pixel];
      const auto weights = axis.of(pixel);
      const std::uint8_t* from = source + 4 * static_cast<std::size_t>(reach.first);
      std::int32_t sums[4] = {kHalf, kHalf, kHalf, kHalf};
      for (std::int32_t i = 0; i < reach.count; ++i, from += 4)
        for (int channel = 0; channel < 4; ++channel)
          sums[channel] += from[channel] * weights[static_cast<std::size_t>(i)];
      for (std::size_t channel = 0; channel < 4; ++channel)
        target[4 * pixel + channel] = byte_of(sums[channel]);
    }
  }
}

void vertical(const Axis& axis, std::size_t pixel, const std::uint8_t* source,
              std::size_t source_stride, std::size_t bytes, std::uint8_t* target) {
  const Axis::Reach reach = axis.reach[pixel];
  const auto weights = axis.of(pixel);
  source += static_cast<std::size_t>(reach.first) * source_stride;
  for (std::size_t at = 0; at < bytes; at += kRowStep) {
    std::int32_t sums[kRowStep];
    std::fill(std::begin(sums), std::end(sums), kHalf);
    for (std::int32_t i = 0; i < reach.count; ++i) {
      const std::uint8_t* from = source + static_cast<std::size_t>(i) * source_stride + at;
      for (std::size_t j = 0; j < kRowStep; ++j)
        sums[j] += from[j] * weights[static_cast<std::size_t>(i)];
    }
    for (std::size_t j = 0; j < kRowStep; ++j) target[at + j] = byte_of(sums[j]);
  }
}

}  // namespace

std::int32_t Axis::lowest() const {
  std::int32_t lowest = reach.empty() ? 0 : reach[0].first;
  for (const Reach& each : reach) lowest = std::min(lowest, each.first);
  return lowest;
}

std::int32_t Axis::end() const {
  std::int32_t end = 0;
  for (const Reach& each : reach) end = std::max(end, each.first + each.count);
  return end;
}

void make_axis(Axis& axis, const Side& side, Filter filter) {
  const Shape shape = shape_of(filter);
  const double scale = static_cast<double>(side.source) / side.target;
  const double stretch = std::max(scale, 1.0);
  const double support = shape.support * stretch;
  const double narrow = 1.0 / stretch;
  const auto most = static_cast<std::size_t>(std::ceil(support)) * 2 + 1;
  axis.width = (std::min(most, static_cast<std::size_t>(side.source)) + 3) / 4 * 4;
  axis.reach.resize(static_cast<std::size_t>(side.count));
  axis.weights.assign(axis.reach.size() * axis.width, 0);
  std::vector<double> weights(axis.width);
  for (std::size_t i = 0; i < axis.reach.size(); ++i) {
    const double centre = (side.begin + static_cast<double>(i) + 0.5) * scale;
    const std::int32_t first = std::max(pixel_at(centre - support), 0);
    const std::int32_t end = std::min(pixel_at(centre + support), side.source);
    const std::int32_t count = std::max(end - first, 0);
    double sum = 0;
    for (std::int32_t k = 0; k < count; ++k) {
      const double weight = shape.weight((k + first - centre + 0.5) * narrow);
      weights[static_cast<std::size_t>(k)] = weight;
      sum += weight;
    }
    for (std::int32_t k = 0; k < count; ++k) {
      const double weight = weights[static_cast<std::size_t>(k)];
      axis.weights[i * axis.width + static_cast<std::size_t>(k)] =
          whole(sum != 0.0 ? weight / sum : weight);
    }
    axis.reach[i] = {.first = first, .count = count};
  }
}

const Resampler kScalarResampler = {
    .name = "scalar", .prepare = no_preparation, .horizontal = horizontal, .vertical = vertical};

const Resampler& best_resampler() {
  static const Resampler& chosen = []() -> const Resampler& {
#if defined(__x86_64__)
    if (base::best_simd() != base::Simd::kScalar) return kAvx2Resampler;
#endif
    return kScalarResampler;
  }();
  return chosen;
}

}  // namespace paceline::loader
