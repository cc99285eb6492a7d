// SPDX-License-Identifier: Apache-2.0
#include "launcher/process/loadable.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>

#include "common/subprocess/spawn.hpp"

namespace paceline::process {
namespace {

#if defined(__aarch64__)
constexpr std::string_view kLoader = "/lib/ld-linux-aarch64.so.1";
#else
constexpr std::string_view kLoader = "/lib64/ld-linux-x86-64.so.2";
#endif

/// All that a process writes, to the end. It is short.
std::string read_all(const UniqueFd& fd) {
  std::string text;
  std::array<char, 4096> part;
  for (;;) {
    const ssize_t got = ::read(fd.get(), part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(part.data(), static_cast<std::size_t>(got));
  }
}

/// The first line that has `what`.
std::string line_with(const std::string& text, std::string_view what) {
  const std::size_t at = text.find(what);
  if (at == std::string::npos) return "";
  const std::size_t before = text.rfind('\n', at);
  const std::size_t from = before == std::string::npos ? 0 : before + 1;
  return text.substr(from, text.find('\n', at) - from);
}

}  // namespace

Status check_loadable(const std::string& library,
                      const std::map<std::string, std::string>& environment,
                      const std::string& loader) {
  SpawnRequest request;
  request.argv = {loader, "--list", library};
  for (const auto& [name, value] : environment) request.environment.push_back(name + "=" + value);
  const auto spawned = spawn(request);
  if (!spawned) return std::unexpected(spawned.error());
  const std::string said = read_all(spawned->err) + read_all(spawned->out);
  int status = 0;
  while (::waitpid(spawned->pid, &status, 0) < 0 && errno == EINTR) {
  }
  // The loader ends with 0 even if a version of a symbol is missing.
  const std::string missing = line_with(said, "not found");
  const bool failed = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
  if (missing.empty() && !failed) return {};
  return fail(Code::kNotFound, Origin::kSystem,
              library + " cannot be loaded here: " +
                  (missing.empty() ? said.substr(0, said.find('\n')) : missing));
}

Status check_loadable(const std::string& library,
                      const std::map<std::string, std::string>& environment) {
  return check_loadable(library, environment, std::string(kLoader));
}

}  // namespace paceline::process
