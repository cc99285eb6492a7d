// SPDX-License-Identifier: Apache-2.0
// JPEG files by libjpeg-turbo, which is found at run time: its library lies beside ours in the
// runtime's folder, and where it does not, there are no pictures, and who asks is told so.
//
// Pixels are Pillow's: the exact transform, smooth upsampling, and grey and CMYK files made RGB as
// Image.convert does it. So is what counts as broken: a file that ends early is an error, one that
// merely warns is not.
//
// Ownership: a JpegLibrary is never unloaded; a JpegReader keeps its buffers from file to file.
// Threads: a reader belongs to one. Failure: text without the file's name, which the caller knows.
// Bounded: kMostPixels, 1 GiB of libjpeg's memory, kMostScans.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <memory>
#include <span>
#include <string>

namespace paceline::loader {

// where Pillow calls a file a decompression bomb
constexpr std::uint64_t kMostPixels = 178'956'970;
constexpr int kMostScans = 500;

class JpegLibrary {
 public:
  // An empty path: the one beside our own library.
  static std::expected<std::shared_ptr<const JpegLibrary>, std::string> load(
      const std::string& path);

 private:
  friend class JpegReader;
  struct Functions;
  std::shared_ptr<const Functions> functions_;
};

class JpegReader {
 public:
  explicit JpegReader(const JpegLibrary& library);
  ~JpegReader();
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  // Reads a file's header. The bytes stay the caller's and must stay there until the last call for
  // this file.
  bool open(std::span<const std::uint8_t> file);
  // Of the picture, then (after start) of the scaled one.
  int width() const;
  int height() const;
  // 1, 2, 4 or 8: each side divided by it, rounded up, as Image.draft has it.
  bool start(int denominator);
  // The next rows, four bytes a pixel, the fourth without a meaning.
  bool read(std::uint8_t* rows, std::size_t stride, int count);
  // The next rows are not wanted, which costs less. There is a row behind them.
  bool skip(int rows);
  // Skips what is left, and tells whether the file ends as it should.
  bool finish();
  const std::string& why() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace paceline::loader
