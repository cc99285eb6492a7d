// SPDX-License-Identifier: Apache-2.0
#include "cli/job/exec.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <iostream>

#include <nlohmann/json.hpp>

#include "cli/watch/lenient.hpp"
#include "cli/watch/text.hpp"
#include "common/contract/labels.hpp"
#include "common/subprocess/spawn.hpp"

extern char** environ;

namespace paceline::cli {
namespace {

using lenient::member;
using nlohmann::json;

constexpr std::size_t kLongestLine = 64ULL << 20U;

std::string launcher_in_pod() {
  return std::string(contract::kRuntimeMount) + "/bin/paceline-launcher";
}

/// The container whose command is the launcher; "" if there is none.
std::string trainer_in(const json& pod) {
  for (const json& container : member(member(pod, "spec"), "containers")) {
    const json& command = member(container, "command");
    if (command.is_array() && !command.empty() && command[0] == launcher_in_pod())
      return lenient::text(container, "name");
  }
  return "";
}

/// Passes on the whole lines of `text`, and keeps the rest.
Status pass_lines(std::string& text, const std::function<Status(std::string_view)>& take) {
  std::size_t at = 0;
  for (auto end = text.find('\n'); end != std::string::npos; end = text.find('\n', at)) {
    if (auto taken = take(std::string_view(text).substr(at, end - at)); !taken) return taken;
    at = end + 1;
  }
  text.erase(0, at);
  if (text.size() > kLongestLine)
    return fail(Code::kExhausted, Origin::kProtocol, "it printed a line without an end");
  return {};
}

/// What kubectl says may come from the pod, so it must not steer the terminal.
void show_lines(std::string& text, bool last) {
  constexpr std::size_t kLongestShown = 4096;
  std::size_t at = 0;
  for (auto end = text.find('\n'); end != std::string::npos; end = text.find('\n', at)) {
    std::cerr << clean(std::string_view(text).substr(at, end - at)) << '\n';
    at = end + 1;
  }
  text.erase(0, at);
  if (text.empty() || (!last && text.size() <= kLongestShown)) return;
  std::cerr << clean(text) << '\n';
  text.clear();
}

Status read_both(const process::Spawned& child,
                 const std::function<Status(std::string_view)>& take) {
  std::array<pollfd, 2> waiting{{{child.out.get(), POLLIN, 0}, {child.err.get(), POLLIN, 0}}};
  std::string text;
  std::string said;
  std::vector<char> buffer(1U << 18U);
  while (waiting[0].fd >= 0 || waiting[1].fd >= 0) {
    if (::poll(waiting.data(), waiting.size(), -1) < 0 && errno != EINTR)
      return fail_errno("poll", errno);
    for (pollfd& stream : waiting) {
      if (stream.fd < 0 || stream.revents == 0) continue;
      const ssize_t got = ::read(stream.fd, buffer.data(), buffer.size());
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        stream.fd = -1;
      } else if (&stream == &waiting[1]) {
        show_lines(said.append(buffer.data(), static_cast<std::size_t>(got)), false);
      } else {
        text.append(buffer.data(), static_cast<std::size_t>(got));
        if (auto passed = pass_lines(text, take); !passed) return passed;
      }
    }
  }
  show_lines(said, true);
  return {};
}

}  // namespace

Result<std::vector<std::string>> exec_in_rank_zero(kube::Api& api, const JobName& job,
                                                   const std::vector<std::string>& arguments,
                                                   const std::stop_token& stop) {
  kube::ListOptions options;
  options.label_selector = std::string(contract::kLabelJob) + "=" + job.name + "," +
                           std::string(contract::kLabelNodeRank) + "=0";
  const auto text = api.list(kube::kPods, job.ns, options, stop);
  if (!text) return std::unexpected(text.error());
  const json pods = json::parse(*text, nullptr, false);
  for (const json& pod : member(pods, "items")) {
    const std::string name = lenient::text(member(pod, "metadata"), "name");
    const std::string container = trainer_in(pod);
    if (lenient::text(member(pod, "status"), "phase") != "Running" || name.empty() ||
        container.empty())
      continue;
    std::vector<std::string> words{"kubectl"};
    if (!job.kubeconfig.empty()) words.push_back("--kubeconfig=" + job.kubeconfig);
    for (const std::string& word :
         {"--namespace=" + job.ns, std::string("exec"), name, "--container=" + container,
          std::string("--"), launcher_in_pod()})
      words.push_back(word);
    words.insert(words.end(), arguments.begin(), arguments.end());
    return words;
  }
  return fail(Code::kNotFound, Origin::kKube,
              "no pod of rank 0 of the job " + job.name + " runs in the namespace " + job.ns +
                  ": `kubectl -n " + job.ns + " get trainingjobs` shows the jobs");
}

Result<int> read_lines_of(const std::vector<std::string>& argv,
                          const std::function<Status(std::string_view line)>& take) {
  process::SpawnRequest request;
  request.argv = argv;
  for (char** entry = environ; *entry != nullptr; ++entry) request.environment.emplace_back(*entry);
  const auto child = process::spawn(request);
  if (!child) {
    return fail(Code::kNotFound, Origin::kSystem,
                argv.front() + " could not be started; install it, or correct PATH");
  }
  const Status read = read_both(*child, take);
  if (!read) ::kill(-child->pid, SIGTERM);
  int status = 0;
  while (::waitpid(child->pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!read) return std::unexpected(read.error());
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace paceline::cli
