// SPDX-License-Identifier: Apache-2.0
#include "launcher/install.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "common/base/unique_fd.hpp"
#include "common/contract/injection.hpp"

namespace paceline::launcher {
namespace {

namespace fs = std::filesystem;

std::unexpected<Error> failed(const fs::path& path, const std::error_code& error) {
  return fail_errno("install " + path.string(), error.value());
}

Status copy_one(const fs::path& from, const fs::path& to) {
  std::error_code error;
  const fs::path partial = to.string() + ".partial";
  fs::copy_file(from, partial, fs::copy_options::overwrite_existing, error);
  if (!error) fs::rename(partial, to, error);
  if (error) return failed(to, error);
  return {};
}

Status copy_tree(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::create_directories(to, error);
  if (error) return failed(to, error);
  for (fs::recursive_directory_iterator at(from, error), end; !error && at != end;
       at.increment(error)) {
    const fs::path target = to / at->path().lexically_relative(from);
    if (at->is_symlink(error)) {
      fs::remove(target, error);
      fs::copy_symlink(at->path(), target, error);
    } else if (at->is_directory(error)) {
      fs::create_directories(target, error);
    } else if (!error) {
      if (auto copied = copy_one(at->path(), target); !copied) return copied;
    }
    if (error) return failed(target, error);
  }
  if (error) return failed(from, error);
  return {};
}

/// Kernels take structures by value, so modules of an older runtime must not stay beside the
/// library of the new one.
Status drop_modules(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) return {};
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (at->path().extension() == ".cubin" && !fs::remove(at->path(), error) && error) break;
  if (error) return failed(folder, error);
  return {};
}

}  // namespace

fs::path own_tree() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).parent_path().parent_path();
}

Status install(const fs::path& source, const fs::path& target) {
  std::error_code error;
  fs::remove(target / ".complete", error);
  if (fs::equivalent(source, target, error)) {
    return fail(Code::kInvalid, Origin::kConfig,
                "install: " + target.string() +
                    " is where the runtime already lies; name another directory");
  }
  if (!fs::is_directory(source / "bin", error))
    return fail(Code::kNotFound, Origin::kConfig,
                "install: " + source.string() + " holds no bin/; is this the runtime image?");
  if (auto dropped = drop_modules(target / contract::kRuntimeModules); !dropped) return dropped;
  for (const std::string_view part : contract::kRuntimeParts) {
    if (!fs::exists(source / part, error)) continue;
    if (auto copied = copy_tree(source / part, target / part); !copied) return copied;
  }
  const fs::path partial = target / ".complete.partial";
  UniqueFd marker(::open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!marker.valid()) return fail_errno("install " + partial.string(), errno);
  const std::string text = PACELINE_VERSION "\n";
  if (::write(marker.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return fail_errno("install " + partial.string(), errno);
  fs::rename(partial, target / ".complete", error);
  if (error) return failed(target / ".complete", error);
  return {};
}

}  // namespace paceline::launcher
