// SPDX-License-Identifier: Apache-2.0
// Resizing of pictures whose pixels have four bytes, to the bit as Pillow's Image.resize does it
// for 8-bit channels: a weight for each source pixel within the filter's reach, computed in double,
// made a whole number of 2^-22; rows first, rounded to 8 bits, then columns.
//
// An Axis is computed for each side of each picture; a pass applies one. The passes are compiled
// once per instruction set and compute the same bits: sums of whole numbers have no order.
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
// bytes behind a source row that a pass may read, whatever they are
constexpr std::size_t kOverread = 16;
constexpr std::size_t kRowStep = 32;  // what the stride of a pass's result is a multiple of

// How `target` pixels come of `source` ones along one side; of them only those from `begin` on.
struct Axis {
  struct Reach {
    std::int32_t first = 0;  // a source pixel
    std::int32_t count = 0;
  };
  std::vector<Reach> reach;           // of each target pixel
  std::vector<std::int32_t> weights;  // `width` for each target pixel, zeros behind the last
  std::size_t width = 0;              // a multiple of 4
  std::vector<std::int16_t> packed;   // the same for a pass's own use

  std::span<const std::int32_t> of(std::size_t pixel) const {
    return std::span(weights).subspan(pixel * width, width);
  }
  // Source pixels that are read at all.
  std::int32_t lowest() const;
  std::int32_t end() const;
};

struct Side {
  std::int32_t source = 0;
  std::int32_t target = 0;
  std::int32_t begin = 0;  // of the target's pixels that are wanted
  std::int32_t count = 0;
};

// Fills an axis that may have been used before. All sizes are positive.
void make_axis(Axis& axis, const Side& side, Filter filter);

struct Resampler {
  const char* name;
  // What `horizontal` wants in Axis::packed.
  void (*prepare)(Axis& axis);
  // `rows` rows of source pixels into rows of axis.reach.size() pixels. Up to kOverread bytes
  // behind a source row are read.
  void (*horizontal)(const Axis& axis, const std::uint8_t* source, std::size_t source_stride,
                     std::size_t rows, std::uint8_t* target, std::size_t target_stride);
  // The target's row `pixel` of axis; `source` is the source's row 0. `bytes` is a multiple of
  // kRowStep.
  void (*vertical)(const Axis& axis, std::size_t pixel, const std::uint8_t* source,
                   std::size_t source_stride, std::size_t bytes, std::uint8_t* target);
};

extern const Resampler kScalarResampler;
#if defined(__x86_64__)
extern const Resampler kAvx2Resampler;
#endif
// By the processor, or as PACELINE_SIMD says.
const Resampler& best_resampler();

}  // namespace paceline::loader
