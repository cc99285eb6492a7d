// SPDX-License-Identifier: Apache-2.0
#include "launcher/process/failure_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>

#include "common/base/unique_fd.hpp"

namespace paceline::process {

std::optional<ReportedException> read_failure_file(const std::filesystem::path& file,
                                                   SteadyTime now) {
  // Do not block on a pipe and do not follow a link that the program may have put there.
  const UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  if (!fd.valid()) return std::nullopt;
  std::array<char, 64> buffer{};
  const ssize_t size = ::read(fd.get(), buffer.data(), buffer.size());
  if (size <= 0) return std::nullopt;
  const char* const end = buffer.data() + size;
  std::int64_t nanoseconds = 0;
  const auto number = std::from_chars(buffer.data(), end, nanoseconds);
  if (number.ec != std::errc{} || nanoseconds < 0) return std::nullopt;
  std::string_view rest(number.ptr, static_cast<std::size_t>(end - number.ptr));
  const bool own = rest.starts_with(" own ");
  if (!own && !rest.starts_with(" peer ")) return std::nullopt;
  rest.remove_prefix(own ? 5 : 6);
  pid_t pid = 0;
  const auto process = std::from_chars(rest.data(), end, pid);
  if (process.ec != std::errc{} || pid <= 0 ||
      std::string_view(process.ptr, static_cast<std::size_t>(end - process.ptr)) != "\n")
    return std::nullopt;
  // Python's monotonic clock and SteadyClock are both CLOCK_MONOTONIC.
  const SteadyTime at{
      std::chrono::duration_cast<SteadyTime::duration>(std::chrono::nanoseconds(nanoseconds))};
  return ReportedException{own ? rendezvous::Cause::kOwn : rendezvous::Cause::kPeer,
                           std::min(at, now), pid};
}

bool runs_in(const std::filesystem::path& root, pid_t pid, pid_t rank) {
  while (pid > 0 && pid != rank) {
    std::ifstream file(root / "proc" / std::to_string(pid) / "stat");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    // "PID (NAME) STATE PARENT …"; NAME may hold any character.
    const std::size_t name = text.rfind(')');
    if (name == std::string::npos) return false;
    std::istringstream fields(text.substr(name + 1));
    char state = 'X';
    if (!(fields >> state >> pid) || state == 'Z' || state == 'X') return false;
  }
  return pid == rank;
}

}  // namespace paceline::process
