// SPDX-License-Identifier: Apache-2.0
#include "common/kube/connect/run_plugin.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <vector>

extern char** environ;

namespace paceline::kube {
namespace {

constexpr std::size_t kMaxOutput = 1024 * 1024;

struct Pipe {
  int ends[2] = {-1, -1};
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  void close_end(int which) {
    if (ends[which] >= 0) ::close(ends[which]);
    ends[which] = -1;
  }
};

std::vector<std::string> environment_of(const ExecPlugin& plugin) {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const auto name = std::string(text.substr(0, text.find('=')));
    if (!plugin.env.contains(name) && name != "KUBERNETES_EXEC_INFO") variables.emplace_back(text);
  }
  for (const auto& [name, value] : plugin.env) variables.push_back(name + "=" + value);
  variables.push_back(R"(KUBERNETES_EXEC_INFO={"apiVersion":")" + plugin.api_version +
                      R"(","kind":"ExecCredential","spec":{"interactive":false}})");
  return variables;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

}  // namespace

Result<std::string> run_plugin(const ExecPlugin& plugin, std::chrono::milliseconds timeout) {
  const std::string what = "credential plugin \"" + plugin.command + "\"";
  Pipe out;
  if (::pipe2(out.ends, O_CLOEXEC) != 0) return fail_errno("pipe for " + what, errno);
  std::vector<std::string> words{plugin.command};
  words.insert(words.end(), plugin.args.begin(), plugin.args.end());
  std::vector<std::string> variables = environment_of(plugin);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out.ends[1], 1);
  pid_t child = -1;
  const int error = ::posix_spawnp(&child, plugin.command.c_str(), &actions, nullptr,
                                   pointers(words).data(), pointers(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0)
    return fail_errno("start " + what + "; install it or correct exec.command", error);
  out.close_end(1);

  std::string text;
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  bool killed = false;
  bool flooded = false;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
                          deadline - std::chrono::steady_clock::now())
                          .count();
    pollfd waiting{out.ends[0], POLLIN, 0};
    const int ready = left <= 0 ? 0 : ::poll(&waiting, 1, static_cast<int>(left));
    if (ready < 0 && errno == EINTR) continue;
    std::array<char, 4096> buffer{};
    const ssize_t got = ready > 0 ? ::read(out.ends[0], buffer.data(), buffer.size()) : -1;
    if (got > 0 && text.size() + static_cast<std::size_t>(got) <= kMaxOutput) {
      text.append(buffer.data(), static_cast<std::size_t>(got));
      continue;
    }
    if (got != 0) {
      killed = true;
      flooded = got > 0;
      ::kill(child, SIGKILL);
    }
    break;
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (flooded) {
    return fail(Code::kInvalid, Origin::kConfig,
                what + " printed more than 1 MiB; a credential is a few kilobytes");
  }
  if (killed)
    return fail(Code::kTimeout, Origin::kConfig,
                what + " did not finish within " + std::to_string(timeout.count()) + " ms", true);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return fail(Code::kUnauthorized, Origin::kConfig,
                what + " failed with " +
                    (WIFEXITED(status) ? "exit code " + std::to_string(WEXITSTATUS(status))
                                       : "signal " + std::to_string(WTERMSIG(status))) +
                    "; run it by hand to see why",
                true);
  }
  return text;
}

}  // namespace paceline::kube
