// SPDX-License-Identifier: Apache-2.0
#include "cli/trace/gzip.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace paceline::cli {
namespace {

constexpr int kGzipOrZlib = 15 + 32;  // window bits: recognise the header
constexpr std::size_t kLargestWrite = 1U << 30U;
constexpr unsigned kBuffer = 1U << 17U;

}  // namespace

Result<GzipFile> GzipFile::create(const std::string& path) {
  errno = 0;
  gzFile file = ::gzopen((path + ".partial").c_str(), path.ends_with(".gz") ? "wb6" : "wbT");
  if (file == nullptr) return fail_errno("write " + path, errno == 0 ? ENOMEM : errno);
  ::gzbuffer(file, kBuffer);
  return GzipFile(path, file);
}

GzipFile::GzipFile(GzipFile&& other) noexcept
    : path_(std::move(other.path_)), file_(std::exchange(other.file_, nullptr)) {}

GzipFile::~GzipFile() {
  if (file_ == nullptr) return;
  ::gzclose(file_);
  std::remove(partial().c_str());
}

std::unexpected<Error> GzipFile::failed() const {
  const int reason = errno == 0 ? EIO : errno;
  auto error = fail_errno("write " + path_, reason);
  if (reason == ENOSPC || reason == EDQUOT)
    error.error().message += ": free some space, or name another file by -o";
  return error;
}

Status GzipFile::write(std::string_view text) {
  errno = 0;
  for (; !text.empty(); text.remove_prefix(std::min(text.size(), kLargestWrite))) {
    const auto part = static_cast<unsigned>(std::min(text.size(), kLargestWrite));
    if (::gzwrite(file_, text.data(), part) != static_cast<int>(part)) return failed();
  }
  return {};
}

Status GzipFile::finish() {
  errno = 0;
  if (::gzclose(std::exchange(file_, nullptr)) != Z_OK) {
    auto error = failed();
    std::remove(partial().c_str());
    return error;
  }
  if (std::rename(partial().c_str(), path_.c_str()) != 0) {
    auto error = failed();
    std::remove(partial().c_str());
    return error;
  }
  return {};
}

InflatingBuffer::InflatingBuffer(std::string_view compressed) {
  stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(compressed.data()));
  stream_.avail_in = static_cast<uInt>(compressed.size());
  ended_ = ::inflateInit2(&stream_, kGzipOrZlib) != Z_OK;
}

InflatingBuffer::~InflatingBuffer() { ::inflateEnd(&stream_); }

InflatingBuffer::int_type InflatingBuffer::underflow() {
  if (gptr() < egptr()) return traits_type::to_int_type(*gptr());
  cut_ = cut_ || given_ >= until_;
  if (cut_) return traits_type::eof();
  stream_.next_out = reinterpret_cast<Bytef*>(text_.data());
  stream_.avail_out = static_cast<uInt>(text_.size());
  while (!ended_ && stream_.avail_out == text_.size())
    ended_ = ::inflate(&stream_, Z_NO_FLUSH) != Z_OK;
  const std::size_t got = text_.size() - stream_.avail_out;
  if (got == 0) return traits_type::eof();
  given_ += got;
  setg(text_.data(), text_.data(), text_.data() + got);
  return traits_type::to_int_type(*gptr());
}

}  // namespace paceline::cli
