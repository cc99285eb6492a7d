// SPDX-License-Identifier: Apache-2.0
#include "agent/inject/file_tree.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <system_error>
#include <utility>

#include "common/base/unique_fd.hpp"

namespace paceline::agent {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostEntries = 65536;
constexpr std::size_t kBlock = 256UL * 1024;

std::unexpected<Error> trouble(std::string_view what, const fs::path& path, int error_number) {
  return fail_errno(std::string(what) + " " + path.string(), error_number);
}

/// FNV-1a, 64 bits.
class Digest {
 public:
  void add(const char* bytes, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i)
      value_ = (value_ ^ static_cast<unsigned char>(bytes[i])) * 0x100000001b3U;
  }
  /// Includes the text's end, so that "ab", "c" differs from "a", "bc".
  void add(const std::string& text) { add(text.c_str(), text.size() + 1); }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325U;
};

/// Reads a file to its end in blocks.
template <typename Take>
Status read_blocks(const fs::path& file, Take take) {
  const UniqueFd source(::open(file.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!source.valid()) return trouble("open", file, errno);
  const auto block = std::make_unique<std::array<char, kBlock>>();
  for (;;) {
    const ssize_t got = ::read(source.get(), block->data(), block->size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return trouble("read", file, errno);
    if (got == 0) return {};
    if (auto taken = take(block->data(), static_cast<std::size_t>(got)); !taken) return taken;
  }
}

Status write_all(int fd, const fs::path& file, const char* bytes, std::size_t size) {
  while (size > 0) {
    const ssize_t wrote = ::write(fd, bytes, size);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return trouble("write", file, errno);
    bytes += wrote;
    size -= static_cast<std::size_t>(wrote);
  }
  return {};
}

Status copy_file(const fs::path& from, const fs::path& to, bool executable) {
  const UniqueFd target(
      ::open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!target.valid()) return trouble("create", to, errno);
  auto copied = read_blocks(from, [&](const char* bytes, std::size_t size) -> Status {
    return write_all(target.get(), to, bytes, size);
  });
  if (!copied) return copied;
  if (::fchmod(target.get(), executable ? 0755 : 0644) != 0) return trouble("chmod", to, errno);
  if (::fsync(target.get()) != 0) return trouble("fsync", to, errno);
  return {};
}

Result<TreeEntry> entry_of(const fs::path& root, const fs::path& path) {
  std::error_code error;
  TreeEntry entry;
  entry.path = path.lexically_relative(root);
  const auto status = fs::symlink_status(path, error);
  if (error) return trouble("look at", path, error.value());
  switch (status.type()) {
    case fs::file_type::directory: entry.kind = TreeEntry::Kind::kFolder; break;
    case fs::file_type::regular:
      entry.executable = (status.permissions() & fs::perms::owner_exec) != fs::perms::none;
      break;
    case fs::file_type::symlink:
      entry.kind = TreeEntry::Kind::kLink;
      entry.leads_to = fs::read_symlink(path, error).string();
      if (error) return trouble("read link", path, error.value());
      break;
    default:
      return fail(Code::kInvalid, Origin::kConfig,
                  path.string() + " is neither a file nor a folder nor a link");
  }
  return entry;
}

}  // namespace

Result<std::vector<TreeEntry>> read_tree(const fs::path& root,
                                         const std::vector<std::string>& parts) {
  std::vector<TreeEntry> entries;
  const auto add = [&](const fs::path& path) -> Status {
    if (entries.size() >= kMostEntries)
      return fail(Code::kInvalid, Origin::kConfig,
                  root.string() + " holds more than " + std::to_string(kMostEntries) + " entries");
    auto entry = entry_of(root, path);
    if (!entry) return std::unexpected(entry.error());
    entries.push_back(std::move(*entry));
    return {};
  };
  for (const std::string& part : parts) {
    std::error_code error;
    const fs::path top = root / part;
    const auto status = fs::symlink_status(top, error);
    if (status.type() == fs::file_type::not_found) continue;
    if (error) return trouble("look at", top, error.value());
    if (auto added = add(top); !added) return std::unexpected(added.error());
    if (!fs::is_directory(status)) continue;
    for (fs::recursive_directory_iterator at(top, error), end; !error && at != end;
         at.increment(error)) {
      if (auto added = add(at->path()); !added) return std::unexpected(added.error());
    }
    if (error) return trouble("list", top, error.value());
  }
  std::ranges::sort(entries, {}, &TreeEntry::path);
  return entries;
}

Result<std::uint64_t> digest_tree(const fs::path& root, const std::vector<TreeEntry>& entries) {
  Digest digest;
  for (const TreeEntry& entry : entries) {
    digest.add(entry.path.string());
    digest.add(std::to_string(static_cast<int>(entry.kind)) + (entry.executable ? "x" : "-"));
    digest.add(entry.leads_to);
    if (entry.kind != TreeEntry::Kind::kFile) continue;
    std::uint64_t size = 0;
    auto read = read_blocks(root / entry.path, [&](const char* bytes, std::size_t got) -> Status {
      digest.add(bytes, got);
      size += got;
      return {};
    });
    if (!read) return std::unexpected(read.error());
    digest.add(std::to_string(size));
  }
  return digest.value();
}

Status sync_folder(const fs::path& folder) {
  const UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return trouble("open", folder, errno);
  if (::fsync(fd.get()) != 0) return trouble("fsync", folder, errno);
  return {};
}

Status copy_tree(const fs::path& from, const std::vector<TreeEntry>& entries, const fs::path& to,
                 const std::stop_token& stop, const BeforeChange& step) {
  for (const TreeEntry& entry : entries) {
    if (stop.stop_requested())
      return fail(Code::kCancelled, Origin::kSystem, "stopped while copying " + from.string());
    const fs::path target = to / entry.path;
    if (step) step("copy " + entry.path.string());
    switch (entry.kind) {
      case TreeEntry::Kind::kFolder:
        if (::mkdir(target.c_str(), 0755) != 0) return trouble("make folder", target, errno);
        if (::chmod(target.c_str(), 0755) != 0) return trouble("chmod", target, errno);
        break;
      case TreeEntry::Kind::kLink:
        if (::symlink(entry.leads_to.c_str(), target.c_str()) != 0)
          return trouble("link", target, errno);
        break;
      case TreeEntry::Kind::kFile:
        if (auto copied = copy_file(from / entry.path, target, entry.executable); !copied)
          return copied;
        break;
    }
  }
  for (const TreeEntry& entry : entries) {
    if (entry.kind != TreeEntry::Kind::kFolder) continue;
    if (auto synced = sync_folder(to / entry.path); !synced) return synced;
  }
  return sync_folder(to);
}

}  // namespace paceline::agent
