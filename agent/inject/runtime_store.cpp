// SPDX-License-Identifier: Apache-2.0
#include "agent/inject/runtime_store.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <system_error>
#include <utility>

#include "common/contract/injection.hpp"

namespace paceline::agent {
namespace {

namespace fs = std::filesystem;

// Names of versions never begin with a dot.
constexpr std::string_view kStaging = ".staging-";
constexpr std::string_view kGarbage = ".garbage-";
constexpr const char* kMarker = ".complete";
constexpr std::size_t kMostVersion = 64;
constexpr std::size_t kDigits = 16;

bool is_word(std::string_view text) {
  return !text.empty() && text.front() != '.' && std::ranges::all_of(text, [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '-' || c == '_' || c == '+';
  });
}

/// VERSION-0123456789abcdef. Other files in the folder are never removed.
bool is_version(std::string_view name) {
  if (name.size() < kDigits + 2 || !is_word(name)) return false;
  const std::string_view digits = name.substr(name.size() - kDigits);
  return name[name.size() - kDigits - 1] == '-' &&
         digits.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

/// Locks a folder and checks that its name still leads to it; nullopt if another process holds it
/// or it is gone.
std::optional<UniqueFd> lock(const fs::path& folder, int how) {
  UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd.valid() || ::flock(fd.get(), how | LOCK_NB) != 0) return std::nullopt;
  struct stat locked{};
  struct stat named{};
  if (::fstat(fd.get(), &locked) != 0 || ::lstat(folder.c_str(), &named) != 0) return std::nullopt;
  if (locked.st_ino != named.st_ino || locked.st_dev != named.st_dev) return std::nullopt;
  return fd;
}

Result<std::string> version_of(const fs::path& source) {
  const fs::path marker = source / kMarker;
  std::ifstream file(marker);
  std::string version;
  if (!file || !std::getline(file, version)) {
    return fail(Code::kNotFound, Origin::kConfig,
                "stage: " + marker.string() +
                    " is missing or empty: no whole runtime lies there; it is written by "
                    "`paceline-launcher install`");
  }
  if (version.size() > kMostVersion || !is_word(version))
    return fail(Code::kInvalid, Origin::kConfig, "stage: " + marker.string() + " holds no version");
  return version;
}

std::string hex(std::uint64_t value) {
  std::array<char, kDigits + 1> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(value));
  return text.data();
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    names.push_back(at->path().filename().string());
  std::ranges::sort(names);
  return names;
}

/// Makes a new folder and locks it before a collector can take it for a leftover.
Result<std::pair<fs::path, UniqueFd>> new_folder(const fs::path& folder) {
  constexpr int kTries = 5;  // a collector may find it between its creation and its lock
  for (int i = 0; i < kTries; ++i) {
    std::string name = (folder / (std::string(kStaging) + "XXXXXX")).string();
    if (::mkdtemp(name.data()) == nullptr)
      return fail_errno("stage: make a folder in " + folder.string(), errno);
    if (auto held = lock(name, LOCK_SH)) return std::pair{fs::path(name), std::move(*held)};
  }
  return fail(Code::kConflict, Origin::kSystem,
              "stage: other processes keep removing new folders in " + folder.string(), true);
}

}  // namespace

std::vector<std::string> RuntimeStore::versions() const {
  std::vector<std::string> names = names_in(folder_);
  std::erase_if(names, [](const std::string& name) { return !is_version(name); });
  return names;
}

bool RuntimeStore::hold(const std::string& version) {
  auto held = lock(folder_ / version, LOCK_SH);
  if (!held) return false;
  held_ = std::move(*held);
  current_ = version;
  return true;
}

bool RuntimeStore::intact() const {
  struct stat held{};
  struct stat named{};
  return held_.valid() && ::fstat(held_.get(), &held) == 0 &&
         ::lstat((folder_ / current_).c_str(), &named) == 0 && held.st_ino == named.st_ino &&
         held.st_dev == named.st_dev;
}

Result<std::string> RuntimeStore::stage(const fs::path& source, const std::stop_token& stop) {
  auto version = version_of(source);
  if (!version) return version;
  std::vector<std::string> parts{kMarker};
  parts.insert(parts.end(), contract::kRuntimeParts.begin(), contract::kRuntimeParts.end());
  auto entries = read_tree(source, parts);
  if (!entries) return std::unexpected(entries.error());
  const auto digest = digest_tree(source, *entries);
  if (!digest) return std::unexpected(digest.error());
  std::string name = *version + "-" + hex(*digest);
  if (hold(name)) return name;

  step("make " + folder_.string());
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) return fail_errno("stage: make " + folder_.string(), error.value());
  remove_leftovers();  // leftovers may be the reason of a full disk
  if (auto copied = copy(source, *entries, name, stop); !copied)
    return std::unexpected(copied.error());
  if (hold(name)) return name;
  return fail(Code::kConflict, Origin::kSystem,
              "stage: another process removed " + name + " as it was made", true);
}

Status RuntimeStore::copy(const fs::path& source, const std::vector<TreeEntry>& entries,
                          const std::string& version, const std::stop_token& stop) {
  step("new folder");
  auto made = new_folder(folder_);
  if (!made) return std::unexpected(made.error());
  const fs::path& staging = made->first;
  auto copied = copy_tree(source, entries, staging, stop, step_);
  if (copied && ::chmod(staging.c_str(), 0755) != 0)
    copied = fail_errno("chmod " + staging.string(), errno);
  if (copied) {
    step("rename " + version);
    // Another process may have made the same version first.
    if (::rename(staging.c_str(), (folder_ / version).c_str()) == 0) {
      step("sync " + folder_.string());
      return sync_folder(folder_);
    }
    if (errno != EEXIST && errno != ENOTEMPTY)
      copied = fail_errno("rename to " + (folder_ / version).string(), errno);
  }
  step("remove " + staging.string());
  std::error_code ignored;
  fs::remove_all(staging, ignored);
  if (copied) return {};
  Error error = copied.error();
  error.message = "stage: " + error.message;
  if (error.code == Code::kExhausted)
    error.message += "; free space on the file system of " + folder_.string();
  return std::unexpected(std::move(error));
}

void RuntimeStore::remove_leftovers() {
  for (const std::string& name : names_in(folder_)) {
    if (!name.starts_with(kStaging) && !name.starts_with(kGarbage)) continue;
    // its maker lives, or another collector removes it
    if (!lock(folder_ / name, LOCK_EX)) continue;
    step("remove " + name);
    std::error_code ignored;
    fs::remove_all(folder_ / name, ignored);
  }
}

Result<int> RuntimeStore::collect(const std::set<std::string>& keep) {
  remove_leftovers();
  int removed = 0;
  for (const std::string& name : versions()) {
    if (name == current_ || keep.contains(name)) continue;
    const auto alone = lock(folder_ / name, LOCK_EX);
    if (!alone) continue;
    // Rename first, so that no process finds a version that lacks files.
    const fs::path garbage = folder_ / (std::string(kGarbage) + name);
    step("unname " + name);
    if (::rename((folder_ / name).c_str(), garbage.c_str()) != 0) {
      // another collector removes a folder of the same name
      if (errno == ENOTEMPTY || errno == EEXIST) continue;
      return fail_errno("collect: rename " + (folder_ / name).string(), errno);
    }
    step("remove " + name);
    std::error_code error;
    fs::remove_all(garbage, error);
    if (error) return fail_errno("collect: remove " + garbage.string(), error.value());
    ++removed;
  }
  return removed;
}

}  // namespace paceline::agent
