// SPDX-License-Identifier: Apache-2.0
// A JPEG file of a training job's data set (`paceline.loader.ImageShards`), framed and resized in
// every way.
#include "accel/src/loader/pictures/picture.hpp"

#include <string>
#include <vector>

#include "tests/fuzz/fuzz.hpp"

namespace {

using namespace paceline;

constexpr std::uint64_t kMost = 1 << 20;  // pixels: larger pictures only take longer

loader::Style style_of(std::uint8_t choice) {
  loader::Style style;
  style.framing.crop = static_cast<loader::Crop>(choice % 3);
  style.framing.width = 9;
  style.framing.height = 7;
  style.framing.shorter = 11;
  style.framing.flip = 0.5;
  style.filter = static_cast<loader::Filter>(choice / 3 % 5);
  style.floats = (choice & 0x20) != 0;
  style.scaled = (choice & 0x40) != 0;
  style.turned = (choice & 0x80) != 0;
  return style;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto library = loader::JpegLibrary::load(PACELINE_JPEG);
  fuzz::require(library.has_value(), "the decoder is there");
  if (size == 0) return 0;
  const loader::Style style = style_of(data[0]);
  const std::vector<std::uint8_t> file(data + 1, data + size);
  loader::JpegReader header(**library);
  if (!header.open(file)) {
    fuzz::require(!header.why().empty(), "a refusal says why");
    return 0;
  }
  if (static_cast<std::uint64_t>(header.width()) * static_cast<std::uint64_t>(header.height()) >
      kMost)
    return 0;
  loader::Painter painter(**library, style, loader::best_resampler());
  loader::Painter plain(**library, style, loader::kScalarResampler);
  std::vector<std::uint8_t> one(style.bytes());
  std::vector<std::uint8_t> other(style.bytes());
  const loader::Place place{.epoch = 1, .sample = size};
  const auto painted = painter.paint(file, place, one.data());
  const auto again = plain.paint(file, place, other.data());
  fuzz::require(painted.has_value() == again.has_value(), "an instruction set changes no answer");
  if (painted) fuzz::require(one == other, "nor a pixel");
  if (!painted) fuzz::require(!painted.error().empty(), "a refusal says why");
  return 0;
}
