// SPDX-License-Identifier: Apache-2.0
#include "agent/inject/slots.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "agent/inject/file_tree.hpp"
#include "agent/probe/sysfs/root.hpp"
#include "common/base/unique_fd.hpp"

namespace paceline::agent {
namespace {

constexpr std::size_t kMostRecord = 256;

std::unexpected<Error> slot_trouble(const char* what, const std::filesystem::path& path,
                                    int error_number) {
  return fail_errno("slots: " + std::string(what) + " " + path.string(), error_number);
}

}  // namespace

Slots::Slots(std::filesystem::path folder, int count) : folder_(std::move(folder)) {
  for (int i = 0; i < count; ++i) ids_.push_back("slot-" + std::to_string(i));
}

Status Slots::prepare() const {
  std::error_code error;
  for (const char* part : {"slots", "assignments"}) {
    std::filesystem::create_directories(folder_ / part, error);
    if (error) return slot_trouble("make", folder_ / part, error.value());
  }
  for (const std::string& id : ids_) {
    const auto path = folder_of(id);
    if (::mkdir(path.c_str(), 0755) != 0 && errno != EEXIST)
      return slot_trouble("make", path, errno);
    if (!std::filesystem::is_directory(std::filesystem::symlink_status(path, error)))
      return slot_trouble("use", path, ENOTDIR);
  }
  return {};
}

bool Slots::whole() const {
  const auto is_folder = [](const std::filesystem::path& path) {
    struct stat is{};
    return ::lstat(path.c_str(), &is) == 0 && S_ISDIR(is.st_mode);
  };
  return is_folder(folder_ / "assignments") &&
         std::ranges::all_of(ids_, [&](const std::string& id) { return is_folder(folder_of(id)); });
}

bool Slots::knows(std::string_view id) const { return std::ranges::find(ids_, id) != ids_.end(); }

Status Slots::assign(const std::string& id, const std::string& version) const {
  const auto path = folder_ / "assignments" / id;
  if (read_bytes(path, kMostRecord) == version) return {};
  const std::string partial = path.string() + ".partial";
  const UniqueFd fd(
      ::open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!fd.valid()) return slot_trouble("create", partial, errno);
  const ssize_t wrote = ::write(fd.get(), version.data(), version.size());
  if (wrote < 0) return slot_trouble("write", partial, errno);
  if (static_cast<std::size_t>(wrote) != version.size())
    return slot_trouble("write", partial, ENOSPC);
  if (::fsync(fd.get()) != 0) return slot_trouble("fsync", partial, errno);
  if (::rename(partial.c_str(), path.c_str()) != 0) return slot_trouble("rename to", path, errno);
  return sync_folder(folder_ / "assignments");
}

std::map<std::string, std::string> Slots::assignments() const {
  std::map<std::string, std::string> result;
  for (const std::string& id : list_names(folder_ / "assignments")) {
    if (id.ends_with(".partial")) continue;
    if (auto version = read_bytes(folder_ / "assignments" / id, kMostRecord))
      result.emplace(id, std::move(*version));
  }
  return result;
}

}  // namespace paceline::agent
