// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/run_program.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "common/subprocess/spawn.hpp"

extern char** environ;

namespace paceline::cli {
namespace {

constexpr int kLookEvery = 100;  // milliseconds between two looks at `stop`

/// Reads what is there. False at the end of the stream.
bool take(int fd, std::string& text) {
  std::array<char, 16384> buffer{};
  const ssize_t got = ::read(fd, buffer.data(), buffer.size());
  if (got < 0) return errno == EINTR || errno == EAGAIN;
  text.append(buffer.data(), static_cast<std::size_t>(got));
  return got > 0;
}

/// Reads both streams to their ends.
Status read_all(const process::Spawned& child, ProgramEnd& end, std::size_t most,
                std::chrono::steady_clock::time_point until, const std::stop_token& stop) {
  std::array<pollfd, 2> waiting{{{child.out.get(), POLLIN, 0}, {child.err.get(), POLLIN, 0}}};
  while (waiting[0].fd >= 0 || waiting[1].fd >= 0) {
    if (stop.stop_requested()) return fail(Code::kCancelled, Origin::kSystem, "asked to stop");
    if (std::chrono::steady_clock::now() >= until)
      return fail(Code::kTimeout, Origin::kSystem, "did not end in time", true);
    if (::poll(waiting.data(), waiting.size(), kLookEvery) <= 0) continue;
    for (pollfd& stream : waiting) {
      if (stream.fd < 0 || stream.revents == 0) continue;
      if (!take(stream.fd, &stream == &waiting[0] ? end.out : end.err)) stream.fd = -1;
    }
    if (end.out.size() + end.err.size() > most)
      return fail(Code::kExhausted, Origin::kSystem, "printed too much");
  }
  return {};
}

}  // namespace

Result<ProgramEnd> run_program(const std::vector<std::string>& argv, std::size_t most,
                               std::chrono::milliseconds timeout, const std::stop_token& stop) {
  process::SpawnRequest request;
  request.argv = argv;
  for (char** entry = environ; *entry != nullptr; ++entry) request.environment.emplace_back(*entry);
  auto child = process::spawn(request);
  if (!child) {
    Error error = child.error();
    error.code = Code::kNotFound;
    return std::unexpected(std::move(error));
  }
  ProgramEnd end;
  const auto until = std::chrono::steady_clock::now() + timeout;
  const Status read = read_all(*child, end, most, until, stop);
  if (!read) ::kill(-child->pid, SIGKILL);
  int status = 0;
  while (::waitpid(child->pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!read)
    return fail(read.error().code, Origin::kSystem, argv.front() + " " + read.error().message);
  end.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return end;
}

}  // namespace paceline::cli
