// SPDX-License-Identifier: Apache-2.0
#include "launcher/trace/request_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

namespace paceline::traces {
namespace {

constexpr std::size_t kBytes = 64;  // a rank maps as many
constexpr off_t kWindowsAt = 24;

bool write_at(int file, const void* bytes, std::size_t size, off_t offset) {
  ssize_t written = 0;
  do {
    written = ::pwrite(file, bytes, size, offset);
  } while (written < 0 && errno == EINTR);
  return written == static_cast<ssize_t>(size);
}

}  // namespace

Result<RequestFile> RequestFile::make(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::remove_all(folder, error);
  if (::mkdir(folder.c_str(), 0700) != 0) return fail_errno("mkdir " + folder.string(), errno);
  if (::chmod(folder.c_str(), 01777) != 0) return fail_errno("chmod " + folder.string(), errno);
  const std::string path = path_in(folder).string();
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!file.valid()) return fail_errno("make " + path, errno);
  // The umask must not keep ranks of another user from reading it.
  if (::fchmod(file.get(), 0644) != 0) return fail_errno("chmod " + path, errno);
  const std::array<char, kBytes> empty{};
  if (!write_at(file.get(), empty.data(), empty.size(), 0))
    return fail_errno("write " + path, errno);
  return RequestFile(std::move(file));
}

Status RequestFile::ask(std::uint64_t start_step, std::uint64_t steps) {
  // The number is stored last: a rank that sees it sees the rest.
  const std::array<std::uint64_t, 2> words{start_step, steps};
  const std::uint64_t next = sequence_ + 1;
  if (!write_at(file_.get(), words.data(), sizeof words, sizeof next) ||
      !write_at(file_.get(), &next, sizeof next, 0))
    return fail_errno("write the request of a trace", errno);
  sequence_ = next;
  return {};
}

Status RequestFile::ask_for_window() {
  const std::uint64_t next = windows_ + 1;
  if (!write_at(file_.get(), &next, sizeof next, kWindowsAt))
    return fail_errno("write the request of a kernel window", errno);
  windows_ = next;
  return {};
}

}  // namespace paceline::traces
