// SPDX-License-Identifier: Apache-2.0
// Making pictures without a picture: weights, both instruction sets to the same bits, regions that
// are the same in every release, EXIF data that lie. Files are decoded in test_loader_images.py.
#include "paceline/pictures.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/simd.hpp"
#include "check.hpp"
#include "loader/pictures/exif.hpp"
#include "loader/pictures/pictures.hpp"
#include "loader/pictures/resample.hpp"
#include "loader/pictures/view.hpp"
#include "memory_source.hpp"

namespace {

using paceline::loader::Axis;
using paceline::loader::Crop;
using paceline::loader::Filter;
using paceline::loader::Framing;
using paceline::loader::make_axis;
using paceline::loader::orientation_of;
using paceline::loader::Resampler;
using paceline::loader::Side;
using paceline::loader::View;
using paceline::loader::view_of;

constexpr std::uint32_t kFilters = 5;

std::vector<std::uint8_t> noise(std::size_t size) {
  std::vector<std::uint8_t> bytes(size);
  std::uint32_t state = 1;
  for (auto& byte : bytes) {
    state = state * 1664525 + 1013904223;
    // extremes too
    byte = (state >> 28) < 4 ? 0 : (state >> 28) < 8 ? 255 : static_cast<std::uint8_t>(state >> 20);
  }
  return bytes;
}

Axis axis_of(const Side& side, Filter filter, const Resampler& resampler) {
  Axis axis;
  make_axis(axis, side, filter);
  resampler.prepare(axis);
  return axis;
}

std::vector<std::uint8_t> resized(const Resampler& resampler, const Side& across, const Side& down,
                                  Filter filter) {
  const auto width = static_cast<std::size_t>(across.source);
  const auto height = static_cast<std::size_t>(down.source);
  const std::vector<std::uint8_t> source = noise(width * height * 4 + paceline::loader::kOverread);
  const std::size_t stride = (static_cast<std::size_t>(across.count) * 4 + 31) / 32 * 32;
  std::vector<std::uint8_t> rows(stride * height);
  const Axis x = axis_of(across, filter, resampler);
  const Axis y = axis_of(down, filter, resampler);
  resampler.horizontal(x, source.data(), width * 4, height, rows.data(), stride);
  std::vector<std::uint8_t> result(stride * static_cast<std::size_t>(down.count));
  for (std::size_t row = 0; row < y.reach.size(); ++row)
    resampler.vertical(y, row, rows.data(), stride, stride, result.data() + row * stride);
  return result;
}

std::vector<std::uint8_t> with_exif(const std::string& tiff) {
  const std::string content = std::string("Exif\0\0", 6) + tiff;
  const std::size_t length = content.size() + 2;
  std::string file = "\xFF\xD8\xFF\xE1";
  file += static_cast<char>(length >> 8);
  file += static_cast<char>(length & 0xFF);
  file += content + "\xFF\xD9";
  return {file.begin(), file.end()};
}

// Grey, 8 pixels wide and high.
constexpr unsigned char kGrey[] = {
    0xFF, 0xD8, 0xFF, 0xE0, 0x00, 0x10, 0x4A, 0x46, 0x49, 0x46, 0x00, 0x01, 0x01, 0x00, 0x00,
    0x01, 0x00, 0x01, 0x00, 0x00, 0xFF, 0xDB, 0x00, 0x43, 0x00, 0x1B, 0x12, 0x14, 0x17, 0x14,
    0x11, 0x1B, 0x17, 0x16, 0x17, 0x1E, 0x1C, 0x1B, 0x20, 0x28, 0x42, 0x2B, 0x28, 0x25, 0x25,
    0x28, 0x51, 0x3A, 0x3D, 0x30, 0x42, 0x60, 0x55, 0x65, 0x64, 0x5F, 0x55, 0x5D, 0x5B, 0x6A,
    0x78, 0x99, 0x81, 0x6A, 0x71, 0x90, 0x73, 0x5B, 0x5D, 0x85, 0xB5, 0x86, 0x90, 0x9E, 0xA3,
    0xAB, 0xAD, 0xAB, 0x67, 0x80, 0xBC, 0xC9, 0xBA, 0xA6, 0xC7, 0x99, 0xA8, 0xAB, 0xA4, 0xFF,
    0xC0, 0x00, 0x0B, 0x08, 0x00, 0x08, 0x00, 0x08, 0x01, 0x01, 0x11, 0x00, 0xFF, 0xC4, 0x00,
    0x14, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0xFF, 0xC4, 0x00, 0x16, 0x10, 0x00, 0x03, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x15, 0x62, 0xFF, 0xDA,
    0x00, 0x08, 0x01, 0x01, 0x00, 0x00, 0x3F, 0x00, 0x22, 0x83, 0xFF, 0xD9,
};

// A tar archive in memory with files of one sample after the other.
class Archive final : public paceline::loader::MemorySource {
 public:
  Archive() : MemorySource("memory.tar") {}
  void add(const std::string& name, const std::string& data) {
    std::string block(512, '\0');
    block.replace(0, name.size(), name);
    char text[13];
    std::snprintf(text, sizeof text, "%011zo", data.size());
    block.replace(124, 12, text, 12);
    block[156] = '0';
    block.replace(148, 8, 8, ' ');
    unsigned sum = 0;
    for (const char c : block) sum += static_cast<unsigned char>(c);
    std::snprintf(text, sizeof text, "%06o", sum);
    block.replace(148, 7, text, 7);
    bytes_ += block + data;
    bytes_.resize((bytes_.size() + 511) / 512 * 512, '\0');
  }
};

const std::string kTurned(
    "MM\0*\0\0\0\x08"
    "\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0",
    22);

}  // namespace

CASE(weights_of_a_pixel_add_up_to_one_and_stay_inside) {
  for (std::uint32_t filter = 0; filter < kFilters; ++filter)
    for (const Side side : {Side{500, 224, 0, 224}, Side{7, 100, 0, 100}, Side{1, 9, 0, 9},
                            Side{5000, 3, 0, 3}, Side{64, 64, 5, 20}}) {
      Axis axis;
      make_axis(axis, side, static_cast<Filter>(filter));
      CHECK_EQ(axis.reach.size(), static_cast<std::size_t>(side.count));
      for (std::size_t pixel = 0; pixel < axis.reach.size(); ++pixel) {
        const Axis::Reach reach = axis.reach[pixel];
        CHECK(reach.first >= 0 && reach.count > 0 && reach.first + reach.count <= side.source);
        std::int64_t sum = 0;
        for (const std::int32_t weight : axis.of(pixel)) sum += weight;
        CHECK(sum - (1 << 22) <= reach.count && (1 << 22) - sum <= reach.count);
      }
    }
}

CASE(every_instruction_set_resizes_to_the_same_bits) {
#if defined(__x86_64__)
  if (!paceline::base::has_avx2()) return;
  for (std::uint32_t filter = 0; filter < kFilters; ++filter)
    for (const Side side : {Side{97, 31, 0, 31}, Side{33, 100, 0, 100}, Side{640, 50, 7, 21},
                            Side{3, 3, 0, 3}, Side{1500, 2, 0, 2}}) {
      const Side down{37, 19, 2, 15};
      const auto plain =
          resized(paceline::loader::kScalarResampler, side, down, static_cast<Filter>(filter));
      const auto wide =
          resized(paceline::loader::kAvx2Resampler, side, down, static_cast<Filter>(filter));
      for (std::size_t row = 0; row < 15; ++row) {  // what lies behind a row's pixels is nobody's
        const std::size_t stride = plain.size() / 15;
        CHECK(std::memcmp(plain.data() + row * stride, wide.data() + row * stride,
                          static_cast<std::size_t>(side.count) * 4) == 0);
      }
    }
#endif
}

CASE(a_region_is_the_same_in_every_release_and_within_the_picture) {
  Framing framing{.crop = Crop::kRandom, .width = 224, .height = 224, .flip = 0.5, .seed = 7};
  const View view = view_of(framing, 500, 375, 3, 12);
  const View again = view_of(framing, 500, 375, 3, 12);
  CHECK(std::memcmp(&view, &again, sizeof view) == 0);
  int flips = 0;
  for (std::uint64_t sample = 0; sample < 2000; ++sample) {
    const auto width = static_cast<std::int32_t>(1 + sample * 7 % 700);
    const auto height = static_cast<std::int32_t>(1 + sample * 13 % 500);
    const View seen = view_of(framing, width, height, 1, sample);
    CHECK(seen.x >= 0 && seen.y >= 0 && seen.width > 0 && seen.height > 0);
    CHECK(seen.x + seen.width <= width && seen.y + seen.height <= height);
    flips += seen.flip ? 1 : 0;
  }
  CHECK(flips > 850 && flips < 1150);
  framing.crop = Crop::kCenter;
  framing.shorter = 256;
  const View centre = view_of(framing, 500, 375, 0, 0);
  CHECK(centre.full_width == 341 && centre.full_height == 256 && centre.left == 58 &&
        centre.top == 16);
}

CASE(exif_data_are_believed_in_nothing) {
  CHECK_EQ(orientation_of(with_exif(kTurned)), 6);
  for (std::size_t size = 0; size < kTurned.size(); ++size) {
    const int got = orientation_of(with_exif(kTurned.substr(0, size)));
    CHECK(got == 1);
  }
  const auto file = with_exif(kTurned);
  for (std::size_t at = 0; at < file.size(); ++at)
    for (const int value : {0, 1, 0x7F, 0xFF}) {
      auto wrong = file;
      wrong[at] = static_cast<std::uint8_t>(value);
      const int got = orientation_of(wrong);
      CHECK(got >= 1 && got <= 8);
      wrong.resize(at);
      if (at + 2 < file.size()) CHECK_EQ(orientation_of(wrong), 1);
    }
}

CASE(threads_make_batches_or_name_the_first_sample_that_is_broken) {
#if defined(PACELINE_JPEG)
  using paceline::loader::Pictures;
  constexpr std::uint64_t kSamples = 40;
  const std::string grey(reinterpret_cast<const char*>(kGrey), sizeof kGrey);
  auto archive = std::make_unique<Archive>();
  for (std::uint64_t i = 0; i < kSamples; ++i) {
    archive->add(std::to_string(i) + ".jpg", i == 33 || i == 37 ? grey.substr(0, 50) : grey);
    archive->add(std::to_string(i) + ".cls", std::to_string(i * 3));
  }
  const auto shards = paceline::loader::Shards::open(std::move(archive), 1);
  const auto library = paceline::loader::JpegLibrary::load(PACELINE_JPEG);
  CHECK(shards.has_value() && library.has_value());
  if (!shards || !library) return;
  paceline::loader::Style style;
  style.framing.width = style.framing.height = 8;
  std::vector<std::uint64_t> samples(kSamples);
  for (std::uint64_t i = 0; i < kSamples; ++i) samples[i] = i;
  std::vector<std::uint8_t> memory(kSamples * style.bytes());
  std::vector<std::uint8_t> other(kSamples * style.bytes());
  std::vector<std::int64_t> numbers(kSamples);
  std::vector<std::int64_t> others(kSamples);
  const auto forever = std::chrono::milliseconds(60'000);
  Pictures pictures(**shards, **library, style, {.pictures = {"jpeg", "jpg"}, .target = "cls"}, 4);
  for (int round = 0; round < 20; ++round) {
    const auto good =
        pictures.begin(0, std::span(samples).first(32), memory.data(), numbers.data());
    const auto bad = pictures.begin(1, samples, other.data(), others.data());
    const auto made = pictures.wait(good, forever);
    CHECK(made && made->has_value());
    const auto broken = pictures.wait(bad, forever);
    CHECK(broken && !broken->has_value() &&
          broken->error().starts_with("memory.tar: 33: its picture: "));
  }
  CHECK_EQ(numbers[31], 93);
  CHECK(std::memcmp(memory.data(), memory.data() + 31 * style.bytes(), style.bytes()) == 0);
  CHECK(memory[7] == memory[7 + 64]);  // grey: the channels are the same
  const auto unknown = pictures.wait(12345, forever);
  CHECK(unknown && !unknown->has_value());
  // Ended in the middle of one: what its memory holds is nobody's, but it is written to no more.
  Pictures ended(**shards, **library, style, {.pictures = {"jpg"}, .target = {}}, 3);
  static_cast<void>(ended.begin(0, std::span(samples).first(32), memory.data(), nullptr));
#endif
}
