// SPDX-License-Identifier: Apache-2.0
// Resizes pictures whose pixels have four bytes. The result equals Pillow's Image.resize of 8-bit
// channels bit for bit. Each source pixel within reach of the filter has a weight, computed in
// double and rounded to a multiple of 2^-22. Rows are resized first and rounded to 8 bits, then
// columns.
//
// An Axis holds the weights of one side of one picture, and a pass applies it. The passes are
// compiled once for each instruction set. They compute the same bits, because sums of integers do
// not depend on the order.
//
// Ownership: the caller's. Threads: pure. Failure: bad_alloc only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace paceline::loader {

enum class Filter : std::uint32_t { kBox, kBilinear, kHamming, kBicubic, kLanczos };

constexpr int kWeightBits = 22;
// Bytes behind a source row that a pass may read. Their values do not matter.
constexpr std::size_t kOverread = 16;
constexpr std::size_t kRowStep = 32;  // the stride of a pass's result is a multiple of this

// Describes how `target` pixels are made of `source` pixels along one side. Only those from `begin`
// on are made.
struct Axis {
  struct Reach {
    std::int32_t first = 0;  // the first source pixel
    std::int32_t count = 0;
  };
  std::vector<Reach> reach;           // for each target pixel
  std::vector<std::int32_t> weights;  // `width` for each target pixel, padded with zeros
  std::size_t width = 0;              // a multiple of 4
  std::vector<std::int16_t> packed;   // the same weights as the pass wants them

  std::span<const std::int32_t> of(std::size_t pixel) const {
    return std::span(weights).subspan(pixel * width, width);
  }
  // The range of source pixels that are read.
  std::int32_t lowest() const;
  std::int32_t end() const;
};

struct Side {
  std::int32_t source = 0;
  std::int32_t target = 0;
  std::int32_t begin = 0;  // the first target pixel that is wanted
  std::int32_t count = 0;
};

// Fills an axis, which may have been used before. All sizes are positive.
void make_axis(Axis& axis, const Side& side, Filter filter);

struct Resampler {
  const char* name;
  // Fills Axis::packed for `horizontal`.
  void (*prepare)(Axis& axis);
  // Resizes `rows` rows of source pixels into rows of axis.reach.size() pixels. It may read up to
  // kOverread bytes behind a source row.
  void (*horizontal)(const Axis& axis, const std::uint8_t* source, std::size_t source_stride,
                     std::size_t rows, std::uint8_t* target, std::size_t target_stride);
  // Makes row `pixel` of the target. `source` points to row 0 of the source. `bytes` is a multiple
  // of kRowStep.
  void (*vertical)(const Axis& axis, std::size_t pixel, const std::uint8_t* source,
                   std::size_t source_stride, std::size_t bytes, std::uint8_t* target);
};

extern const Resampler kScalarResampler;
#if defined(__x86_64__)
extern const Resampler kAvx2Resampler;
#endif
// Returns the best passes for this processor, or those that PACELINE_SIMD names.
const Resampler& best_resampler();

}  // namespace paceline::loader
