// SPDX-License-Identifier: Apache-2.0
// Decodes JPEG files with libjpeg-turbo, which is found at run time beside our own library. If it
// is missing, no pictures can be decoded, and load() says so.
//
// Pixels equal those of Pillow: the exact transform, smooth upsampling, and the conversion of grey
// and CMYK files to RGB of Image.convert. Broken files are those that Pillow refuses: a file that
// ends early is an error, a file that merely warns is not.
//
// Ownership: a JpegLibrary is never unloaded. A JpegReader keeps its buffers from file to file.
// Threads: a reader belongs to one thread. Failure: text without the name of the file, which the
// caller adds. Limits: kMostPixels, 1 GiB of libjpeg's memory, kMostScans.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <memory>
#include <span>
#include <string>

namespace paceline::loader {

// above this, Pillow reports a decompression bomb
constexpr std::uint64_t kMostPixels = 178'956'970;
constexpr int kMostScans = 500;

class JpegLibrary {
 public:
  // An empty path means the file beside our own library.
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

  // Reads the header of a file. The bytes belong to the caller, and must stay until the last call
  // for this file.
  bool open(std::span<const std::uint8_t> file);
  // The size of the picture; after start(), the size of the scaled picture.
  int width() const;
  int height() const;
  // Begins to decode. The denominator is 1, 2, 4 or 8: each side is divided by it and rounded up,
  // as by Image.draft.
  bool start(int denominator);
  // Reads the next rows. A pixel has four bytes, the fourth without a meaning.
  bool read(std::uint8_t* rows, std::size_t stride, int count);
  // Skips the next rows, which costs less than reading them. A row must follow the skipped ones.
  bool skip(int rows);
  // Skips the remaining rows. Returns whether the file ends as it should.
  bool finish();
  const std::string& why() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace paceline::loader
