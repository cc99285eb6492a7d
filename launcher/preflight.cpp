// SPDX-License-Identifier: Apache-2.0
#include "launcher/preflight.hpp"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/base/duration.hpp"
#include "common/contract/env.hpp"
#include "common/subprocess/spawn.hpp"

namespace paceline::launcher {
namespace {

using std::chrono::steady_clock;

constexpr std::size_t kMaxAnswer = 64 * 1024;
constexpr std::size_t kMaxText = 1024;
constexpr std::chrono::milliseconds kLook{100};  // how often a stop request is checked

PodReadiness unproved(std::string evidence) {
  return {std::nullopt, "", std::move(evidence), "", {}};
}

/// Appends what can be read to `text`, up to its bound. Returns false at the end of the stream.
bool take(int descriptor, std::string& text) {
  std::array<char, 4096> buffer{};
  const ssize_t got = ::read(descriptor, buffer.data(), buffer.size());
  if (got < 0) return errno == EINTR || errno == EAGAIN;
  if (got == 0) return false;
  text.append(buffer.data(), std::min(static_cast<std::size_t>(got), kMaxAnswer - text.size()));
  return true;
}

std::string text_of(const nlohmann::json& object, const char* name) {
  const auto field = object.find(name);
  return field != object.end() && field->is_string() ? field->get<std::string>().substr(0, kMaxText)
                                                     : std::string();
}

}  // namespace

PodReadiness read_readiness(std::string_view text) {
  const auto answer = nlohmann::json::parse(text, nullptr, false);
  if (!answer.is_object() || answer.value("version", nlohmann::json()) != 1 ||
      !answer.contains("ready"))
    return unproved("paceline-probe gave no answer that is understood");
  PodReadiness readiness{std::nullopt,
                         text_of(answer, "check"),
                         text_of(answer, "evidence"),
                         text_of(answer, "remedy"),
                         {}};
  if (answer["ready"].is_boolean()) readiness.ready = answer["ready"].get<bool>();
  for (const auto& finding : answer.value("findings", nlohmann::json::array())) {
    if (!finding.is_object() || readiness.findings.size() >= telemetry::kMostFindings) continue;
    readiness.findings.push_back({text_of(finding, "check"), text_of(finding, "subject"),
                                  text_of(finding, "status"), text_of(finding, "evidence")});
  }
  return readiness;
}

std::string describe(const PodReadiness& readiness) {
  std::string text = readiness.check.empty() ? ""
                     : readiness.ready       ? readiness.check + " fails: "
                                             : readiness.check + " cannot be told: ";
  text += readiness.evidence;
  if (!readiness.remedy.empty()) text += "; remedy: " + readiness.remedy;
  return text;
}

ProbeCommand pod_probe(const std::filesystem::path& tree,
                       const frameworks::Environment& environment) {
  ProbeCommand probe;
  // The GPUs belong to this pod alone, so a probe of busy GPUs disturbs no other job.
  probe.argv = {(tree / "bin" / "paceline-probe").string(), "--pod-verdict", "--even-busy"};
  for (const auto& [name, value] : environment) {
    if (name != env::kToken.name) probe.environment.push_back(name + "=" + value);
  }
  return probe;
}

PodReadiness ask_probe(const ProbeCommand& command, const std::stop_token& stop) {
  auto probe = process::spawn({command.argv, command.environment, {}, ""});
  if (!probe) {
    // Without the remedy at the end of the message, which is about the user's command.
    const std::string& why = probe.error().message;
    return unproved(why.substr(0, why.find(';')) +
                    "; it needs glibc 2.28 or later in the image, and an image of musl has none");
  }
  const auto deadline = steady_clock::now() + command.limit;
  std::string answer;
  std::string complaints;
  bool telling = true;
  while (telling) {
    if (stop.stop_requested() || steady_clock::now() >= deadline) {
      ::kill(-probe->pid, SIGKILL);
      return unproved(stop.stop_requested() ? "paceline-probe was stopped"
                                            : "paceline-probe gave no answer within " +
                                                  format_duration(command.limit));
    }
    std::array<pollfd, 2> ends{pollfd{probe->out.get(), POLLIN, 0},
                               pollfd{probe->err.get(), POLLIN, 0}};
    if (::poll(ends.data(), ends.size(), static_cast<int>(kLook.count())) <= 0) continue;
    if (ends[0].revents != 0) telling = take(ends[0].fd, answer);
    // Read stderr so that the probe never blocks on it. At its end remove it from poll, which would
    // return at once.
    if (ends[1].revents != 0 && !take(ends[1].fd, complaints)) probe->err.reset();
  }
  return read_readiness(answer);
}

std::jthread ask_in_background(ProbeCommand command, std::function<void(PodReadiness)> told) {
  return std::jthread([command = std::move(command), told = std::move(told)](
                          const std::stop_token& stop) { told(ask_probe(command, stop)); });
}

Judgement judge(const PodReadiness& readiness, const std::string& gpu_direct,
                const std::string& pod_name) {
  if (readiness.ready.value_or(false))
    return {true, "gpuDirect: memory of every GPU here was registered with every RDMA device here"};
  const std::string why = "spec.network.gpuDirect is " + gpu_direct + ", but in pod " + pod_name +
                          " " + describe(readiness);
  if (gpu_direct != "Preferred") return {false, why};
  return {true, "warning: " + why + "; NCCL falls back to copies through host memory"};
}

}  // namespace paceline::launcher
