// SPDX-License-Identifier: Apache-2.0
#include "launcher/process/raised.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <string_view>

#include "common/telemetry/unique_fd.hpp"

namespace paceline::process {

std::optional<Raised> read_raised(const std::filesystem::path& file, SteadyTime now) {
  // Neither a pipe nor a link that the program has put there is waited for, or followed.
  const telemetry::UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  if (!fd.valid()) return std::nullopt;
  std::array<char, 64> buffer{};
  const ssize_t size = ::read(fd.get(), buffer.data(), buffer.size());
  if (size <= 0) return std::nullopt;
  const char* const end = buffer.data() + size;
  std::int64_t nanoseconds = 0;
  const auto number = std::from_chars(buffer.data(), end, nanoseconds);
  if (number.ec != std::errc{} || nanoseconds < 0) return std::nullopt;
  const std::string_view rest(number.ptr, static_cast<std::size_t>(end - number.ptr));
  if (rest != " own\n" && rest != " peer\n") return std::nullopt;
  // Python's monotonic clock and ours are CLOCK_MONOTONIC.
  const SteadyTime at{std::chrono::duration_cast<SteadyTime::duration>(std::chrono::nanoseconds(nanoseconds))};
  return Raised{rest == " own\n" ? rendezvous::Cause::kOwn : rendezvous::Cause::kPeer, std::min(at, now)};
}

}  // namespace paceline::process
