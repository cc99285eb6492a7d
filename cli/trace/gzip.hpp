// SPDX-License-Identifier: Apache-2.0
// Reads and writes gzip by zlib: GzipFile writes a file, plain or compressed, under another name
// until it is complete; InflatingBuffer reads compressed bytes in memory as a stream.
//
// Owners of their descriptors and states. Not thread-safe. Failure: GzipFile names the path and
// the reason, such as a full disk. InflatingBuffer ends early, which the reader of its text sees.
// It limits the text, since a few bytes may stand for any amount of it.
#pragma once

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <streambuf>
#include <string>
#include <string_view>

#include "common/base/error.hpp"

namespace paceline::cli {

class GzipFile {
 public:
  /// Compressed if the name ends in ".gz".
  static Result<GzipFile> create(const std::string& path);
  ~GzipFile();
  GzipFile(GzipFile&& other) noexcept;
  GzipFile& operator=(GzipFile&&) = delete;

  Status write(std::string_view text);
  /// Gives the file its name. Without this call nothing of it stays.
  Status finish();

 private:
  GzipFile(std::string path, gzFile file) : path_(std::move(path)), file_(file) {}
  std::string partial() const { return path_ + ".partial"; }
  std::unexpected<Error> failed() const;

  std::string path_;
  gzFile file_ = nullptr;
};

class InflatingBuffer final : public std::streambuf {
 public:
  static constexpr std::uint64_t kMost = 4ULL << 30U;  // bytes of text

  /// Borrows the bytes.
  explicit InflatingBuffer(std::string_view compressed);
  ~InflatingBuffer() override;
  InflatingBuffer(const InflatingBuffer&) = delete;
  InflatingBuffer& operator=(const InflatingBuffer&) = delete;

  /// Ends after about so many bytes more, if it is not allowed more before.
  void allow(std::uint64_t bytes) { until_ = std::min(given_ + bytes, kMost); }
  /// It has ended at a limit.
  bool cut() const { return cut_; }

 protected:
  int_type underflow() override;

 private:
  z_stream stream_{};
  bool ended_ = false;
  bool cut_ = false;
  std::uint64_t given_ = 0;
  std::uint64_t until_ = kMost;
  std::array<char, 65536> text_{};
};

}  // namespace paceline::cli
