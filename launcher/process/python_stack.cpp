// SPDX-License-Identifier: Apache-2.0
#include "launcher/process/python_stack.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <string_view>
#include <system_error>
#include <vector>

namespace paceline::process {
namespace {

namespace fs = std::filesystem;

// The name of the memfd, or of the file that was removed, as the kernel shows its link.
constexpr std::string_view kFileName = "paceline-stacks";

std::unexpected<Error> unanswered(std::string why) {
  return fail(Code::kUnavailable, Origin::kSystem, std::move(why));
}

bool catches(const fs::path& process, int signal) {
  std::ifstream status(process / "status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("SigCgt:")) continue;
    const std::size_t digits = line.find_first_not_of(" \t", 7);
    if (digits == std::string::npos) return false;
    std::uint64_t mask = 0;
    std::from_chars(line.data() + digits, line.data() + line.size(), mask, 16);
    return (mask >> static_cast<unsigned>(signal - 1) & 1U) != 0;
  }
  return false;
}

fs::path stack_file(const fs::path& process) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(process / "fd", error)) {
    const fs::path target = fs::read_symlink(entry.path(), error);
    if (!error && target.filename().string().find(kFileName) != std::string::npos)
      return entry.path();
    error.clear();
  }
  return {};
}

}  // namespace

pid_t process_to_ask(const fs::path& root, pid_t pid) {
  constexpr std::size_t kMostProcesses = 64;
  std::vector<pid_t> family{pid};
  for (std::size_t i = 0; i < family.size() && i < kMostProcesses; ++i) {
    const std::string name = std::to_string(family[i]);
    const fs::path process = root / "proc" / name;
    if (!stack_file(process).empty() && catches(process, kStackSignal)) return family[i];
    std::ifstream children(process / "task" / name / "children");
    for (pid_t child = 0; children >> child;) family.push_back(child);
  }
  return 0;
}

Result<UniqueFd> ask_for_stacks(const fs::path& root, pid_t pid) {
  const fs::path process = root / "proc" / std::to_string(pid);
  const fs::path path = stack_file(process);
  if (path.empty())
    return unanswered("it is no Python process of the runtime, or its descriptors cannot be read");
  if (!catches(process, kStackSignal))
    return unanswered("it does not catch signal " + std::to_string(kStackSignal));
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  struct stat about{};
  if (!file.valid() || ::fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode))
    return unanswered("its file cannot be opened");
  if (::ftruncate(file.get(), 0) != 0) return unanswered("its file cannot be emptied");
  if (::kill(pid, kStackSignal) != 0)
    return unanswered("it cannot be signalled: " + std::generic_category().message(errno));
  return file;
}

std::string read_stacks(const UniqueFd& file, std::size_t most) {
  struct stat about{};
  if (::fstat(file.get(), &about) != 0 || about.st_size <= 0) return "";
  const auto size = static_cast<std::size_t>(about.st_size);
  std::string text(std::min(size, most), '\0');
  const ssize_t got =
      ::pread(file.get(), text.data(), text.size(), static_cast<off_t>(size - text.size()));
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  std::ranges::replace_if(text, [](char c) { return c != '\n' && (c < ' ' || c > '~'); }, '?');
  return text;
}

}  // namespace paceline::process
