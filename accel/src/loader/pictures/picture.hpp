// SPDX-License-Identifier: Apache-2.0
// Turns one JPEG file into one picture of a batch: decodes, crops, resizes and mirrors it. The
// result is channel by channel, as PyTorch's convolutions want it: bytes or normalised floats.
//
// The floats equal PyTorch's for `(value / 255 - mean) / std`, with each operation rounded to 32
// bits.
//
// Ownership: a Painter keeps its buffers. Threads: a Painter belongs to one thread; a Style is
// immutable. Failure: text without the name of the file.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "loader/pictures/jpeg.hpp"
#include "loader/pictures/resample.hpp"
#include "loader/pictures/view.hpp"

namespace paceline::loader {

struct Style {
  Framing framing;
  Filter filter = Filter::kBilinear;
  bool floats = false;
  bool scaled = false;  // the decoder may divide the sides, as with Image.draft
  bool turned = false;  // turned by the EXIF data, as by ImageOps.exif_transpose
  std::array<float, 3> mean{};
  std::array<float, 3> deviation{1, 1, 1};

  std::size_t bytes() const {
    return static_cast<std::size_t>(framing.width) * static_cast<std::size_t>(framing.height) * 3 *
           (floats ? sizeof(float) : 1);
  }
};

struct Place {
  std::uint64_t epoch = 0;
  std::uint64_t sample = 0;
};

class Painter {
 public:
  Painter(const JpegLibrary& library, const Style& style, const Resampler& resampler);

  // `target` has room for style.bytes().
  std::expected<void, std::string> paint(std::span<const std::uint8_t> file, const Place& place,
                                         void* target);
  // Returns the view that paint() would deliver.
  std::expected<View, std::string> view(std::span<const std::uint8_t> file, const Place& place);
  // The processor time spent in the decoder so far, in nanoseconds.
  std::uint64_t decoding() const { return decoding_; }

 private:
  bool from_file(const View& view);
  bool from_memory(const View& view, int orientation);
  void make_axes(const View& view);
  void deliver(const View& view, void* target);
  void write_row(const View& view, const std::uint8_t* row, std::int32_t y, void* target) const;

  Style style_;
  const Resampler& resampler_;
  JpegReader reader_;
  std::array<std::array<float, 256>, 3> floats_{};
  Axis across_;
  Axis down_;
  bool is_across_ = false;  // whether the width changes
  bool is_down_ = false;
  std::vector<std::uint8_t> strip_;
  std::vector<std::uint8_t> whole_;
  // Rows after resizing their width. The first is row down_.lowest() of the region.
  std::vector<std::uint8_t> rows_;
  std::size_t stride_ = 0;  // the stride of rows_
  std::int32_t first_ = 0;
  std::vector<std::uint8_t> row_;
  std::uint64_t decoding_ = 0;
};

}  // namespace paceline::loader
