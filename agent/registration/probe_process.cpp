// SPDX-License-Identifier: Apache-2.0
#include "agent/registration/probe_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>
#include <utility>

#include "agent/registration/attempt_json.hpp"
#include "common/base/unique_fd.hpp"

extern char** environ;

namespace paceline::agent {
namespace {

using nlohmann::json;
using std::chrono::steady_clock;

constexpr std::size_t kMaxLine = 65536;

std::string seconds(std::chrono::milliseconds time) {
  const auto ms = time.count();
  return ms % 1000 == 0 ? std::to_string(ms / 1000) + " s" : std::to_string(ms) + " ms";
}

/// The report so far, from the child's lines.
class Story {
 public:
  /// Returns false for a line that paceline-probe does not write.
  bool take(const std::string& line) {
    const json said = json::parse(line, nullptr, false);
    if (!said.is_object()) return false;
    if (said.contains("begin")) {
      auto attempt = read_attempt(said["begin"]);
      if (!attempt) return false;
      begun_ = std::move(*attempt);
      return true;
    }
    if (said.contains("end")) {
      auto attempt = read_attempt(said["end"]);
      if (!attempt || found_.attempts.size() >= kMaxAttempts) return false;
      begun_.reset();
      found_.attempts.push_back(std::move(*attempt));
      return true;
    }
    auto last = said.contains("finished") ? read_registrations(said["finished"].dump())
                                          : Result<Registrations>(std::unexpected(Error{}));
    if (!last) return false;
    last->attempts = std::move(found_.attempts);
    found_ = std::move(*last);
    finished_ = true;
    return true;
  }

  bool finished() const { return finished_; }

  /// The child ended before its report did: blame the step in progress, or the whole run if there
  /// is none.
  void break_off(Outcome outcome, const std::string& why) {
    if (finished_) return;
    if (begun_) {
      begun_->outcome = outcome;
      begun_->why = why;
      found_.attempts.push_back(std::move(*begun_));
    } else {
      found_.problem = "paceline-probe gave no result: " + why;
    }
  }

  Registrations take_result() { return std::move(found_); }

 private:
  Registrations found_;
  std::optional<Attempt> begun_;
  bool finished_ = false;
};

/// Starts the child in its own process group, with its stdout in the pipe. Returns its pid.
Result<pid_t> start(const ProbeCommand& command, int stdout_end) {
  std::vector<std::string> words{command.program};
  words.insert(words.end(), command.arguments.begin(), command.arguments.end());
  std::vector<char*> pointers;
  for (auto& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, stdout_end, 1);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  pid_t child = -1;
  const int error = ::posix_spawn(&child, command.program.c_str(), &actions, &attributes,
                                  pointers.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    return fail(Code::kNotFound, Origin::kSystem,
                "cannot start " + command.program + ": " + std::strerror(error) +
                    "; it is installed beside paceline and paceline-agent");
  }
  return child;
}

/// Returns true when the child has ended. Does not reap it, so that its pid is not reused.
bool has_ended(pid_t child, std::chrono::milliseconds time) {
  const UniqueFd handle(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  const auto deadline = steady_clock::now() + time;
  for (;;) {
    pollfd waiting{handle.get(), POLLIN, 0};
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - steady_clock::now()).count();
    const int ready = ::poll(&waiting, 1, static_cast<int>(std::max<long>(left, 0)));
    if (ready < 0 && errno == EINTR) continue;
    return ready > 0;
  }
}

enum class Silence { kNone, kTooLong, kTooLongInAll, kNonsense };

/// Reads lines until the child closes its end, or returns why it stopped reading.
Silence listen(const ProbeCommand& command, int end, Story& story) {
  const auto whole = steady_clock::now() + command.whole;
  auto quiet = steady_clock::now() + command.silence;
  std::string text;
  for (;;) {
    const auto now = steady_clock::now();
    if (now >= whole) return Silence::kTooLongInAll;
    if (now >= quiet) return Silence::kTooLong;
    pollfd waiting{end, POLLIN, 0};
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(std::min(whole, quiet) - now).count();
    const int ready = ::poll(&waiting, 1, static_cast<int>(left));
    if (ready <= 0) continue;  // a signal or a deadline, which the loop checks
    std::array<char, 4096> buffer{};
    const ssize_t got = ::read(end, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Silence::kNone;
    text.append(buffer.data(), static_cast<std::size_t>(got));
    for (auto line = text.find('\n'); line != std::string::npos; line = text.find('\n')) {
      if (!story.take(text.substr(0, line))) return Silence::kNonsense;
      text.erase(0, line + 1);
      quiet = steady_clock::now() + command.silence;
    }
    if (text.size() > kMaxLine) return Silence::kNonsense;
  }
}

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status))
    return "the process ended by signal " + std::to_string(WTERMSIG(status)) + " (" +
           strsignal(WTERMSIG(status)) + ")";
  return "the process ended with exit code " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

Registrations run_probe_process(const ProbeCommand& command) {
  std::array<int, 2> ends{-1, -1};
  Story story;
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    story.break_off(Outcome::kNotTried, std::string("no pipe: ") + std::strerror(errno));
    return story.take_result();
  }
  const UniqueFd ours(ends[0]);
  UniqueFd theirs(ends[1]);
  const auto child = start(command, theirs.get());
  theirs.reset();
  if (!child) {
    story.break_off(Outcome::kNotTried, child.error().message);
    return story.take_result();
  }
  const Silence silence = listen(command, ours.get(), story);
  // A child that closed its end is about to exit; its exit status tells more.
  const bool by_itself = silence == Silence::kNone && has_ended(*child, command.until_dead);
  ::kill(-*child, SIGKILL);  // also its children, which may outlive it
  const bool dead = by_itself || has_ended(*child, command.until_dead);
  int status = 0;
  const bool reaped = ::waitpid(*child, &status, WNOHANG) == *child;
  const std::string stuck =
      dead ? "" : ", and the process does not even end when it is killed: it hangs in the kernel";
  const std::string ended =
      by_itself && reaped ? how_it_ended(status) : "the process closed its output and does not end";
  switch (silence) {
    case Silence::kNone: story.break_off(Outcome::kRefused, ended + stuck); break;
    case Silence::kTooLong:
      story.break_off(Outcome::kHung, "no answer within " + seconds(command.silence) + stuck);
      break;
    case Silence::kTooLongInAll:
      story.break_off(Outcome::kHung, "not done within " + seconds(command.whole) + stuck);
      break;
    case Silence::kNonsense:
      story.break_off(Outcome::kRefused, "its output is not a report of paceline-probe" + stuck);
      break;
  }
  return story.take_result();
}

}  // namespace paceline::agent
