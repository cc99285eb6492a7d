// SPDX-License-Identifier: Apache-2.0
#include "launcher/files.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "common/base/unique_fd.hpp"

namespace paceline::launcher {

Status write_in_place(const std::filesystem::path& path, std::string_view content) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file.valid()) return fail_errno("write " + path.string(), errno);
  while (!content.empty()) {
    const ssize_t written = ::write(file.get(), content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return fail_errno("write " + path.string(), errno);
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

Status write_atomically(const std::filesystem::path& path, std::string_view content) {
  const std::string partial = path.string() + ".partial";
  if (auto written = write_in_place(partial, content); !written) return written;
  if (::rename(partial.c_str(), path.c_str()) != 0) return fail_errno("rename " + partial, errno);
  return {};
}

}  // namespace paceline::launcher
