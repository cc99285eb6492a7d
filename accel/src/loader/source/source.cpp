// SPDX-License-Identifier: Apache-2.0
#include "loader/source/source.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace paceline::loader {
namespace {

std::unexpected<std::string> failed(const std::string& path, const char* what, int error) {
  return std::unexpected(path + ": " + what + ": " + std::strerror(error));
}

}  // namespace

FileSource::FileSource(std::vector<std::string> paths) : paths_(std::move(paths)) {
  for (auto& fd : kept_) fd.store(-1, std::memory_order_relaxed);
}

FileSource::~FileSource() {
  for (auto& fd : kept_) const base::Fd closed(fd.load(std::memory_order_relaxed));
}

std::expected<FileSource::Opened, std::string> FileSource::opened(std::size_t object) const {
  if (object < kKept)
    if (const int fd = kept_[object].load(std::memory_order_acquire); fd >= 0)
      return Opened{fd, {}};
  base::Fd fd(::open(paths_[object].c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return failed(paths_[object], "cannot be opened", errno);
  const int number = fd.get();
  if (object >= kKept) return Opened{number, std::move(fd)};
  int before = -1;
  if (!kept_[object].compare_exchange_strong(before, number, std::memory_order_acq_rel))
    return Opened{before, {}};  // another thread opened the file first
  return Opened{fd.release(), {}};
}

std::expected<std::uint64_t, std::string> FileSource::size(std::size_t object) const {
  const auto file = opened(object);
  if (!file) return std::unexpected(file.error());
  struct stat status{};
  if (::fstat(file->number, &status) != 0) return failed(paths_[object], "has no size", errno);
  if (!S_ISREG(status.st_mode)) return std::unexpected(paths_[object] + ": is not a file");
  return static_cast<std::uint64_t>(status.st_size);
}

std::expected<std::size_t, std::string> FileSource::pread(std::size_t object, std::uint64_t offset,
                                                          void* target, std::size_t size) const {
  const auto file = opened(object);
  if (!file) return std::unexpected(file.error());
  std::size_t got = 0;
  while (got < size) {
    const ssize_t count = ::pread(file->number, static_cast<char*>(target) + got, size - got,
                                  static_cast<off_t>(offset + got));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return failed(paths_[object], "cannot be read", errno);
    if (count == 0) break;
    got += static_cast<std::size_t>(count);
  }
  return got;
}

}  // namespace paceline::loader
