// SPDX-License-Identifier: Apache-2.0
#include "launcher/watch/stack_capture.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <sstream>
#include <utility>

#include "launcher/process/failure_file.hpp"
#include "launcher/process/python_stack.hpp"
#include "launcher/process/thread_states.hpp"

namespace paceline::launcher {
namespace {

// faulthandler writes within milliseconds, unless the process does not run.
constexpr std::chrono::milliseconds kAnswerTime{700};
constexpr std::size_t kMostThreads = 12;
constexpr std::size_t kWords = 256;  // of our own in a rank's text, at most
constexpr const char* kRoot = "/";

struct Asked {
  int rank;
  pid_t pid;
  UniqueFd file;
  std::string trouble;
};

Asked ask(int rank, pid_t pid) {
  Asked asked{rank, pid, {}, ""};
  auto file = process::ask_for_stacks(kRoot, pid);
  if (file) {
    asked.file = *std::move(file);
  } else {
    asked.trouble = file.error().message;
  }
  return asked;
}

std::string text_of(const Asked& asked, std::size_t room) {
  std::string states = process::thread_states(kRoot, asked.pid, kMostThreads);
  states.resize(std::min(states.size(), room / 4));
  std::string text =
      "Threads of process " + std::to_string(asked.pid) + ", as the kernel sees them:\n" + states;
  const std::string python =
      asked.file.valid() ? process::read_stacks(asked.file, room - text.size() - kWords) : "";
  if (!python.empty()) return text + "Python, the main thread last:\n" + python;
  return text + "Python wrote no stack: " +
         (asked.trouble.empty() ? "the process did not answer" : asked.trouble) + "\n";
}

}  // namespace

void StackCapture::log(const std::vector<rendezvous::RankStack>& captured) {
  constexpr std::size_t kMostRanks = 8;
  for (std::size_t i = 0; i < captured.size() && i < kMostRanks; ++i) {
    log_.line("stacks of rank " + std::to_string(captured[i].rank) + ":");
    std::istringstream lines(captured[i].text);
    for (std::string line; std::getline(lines, line);) log_.line("  " + line);
  }
}

void StackCapture::begin(const std::map<int, pid_t>& started,
                         const std::map<int, std::uint32_t>& claimed, Done done) {
  std::map<int, pid_t> targets;
  for (const auto& [rank, pid] : started) {
    const pid_t asks = process::process_to_ask(kRoot, pid);
    targets[rank] = asks > 0 ? asks : pid;
  }
  for (const auto& [rank, claim] : claimed) {
    const auto pid = static_cast<pid_t>(claim);
    if (process::runs_in(kRoot, pid, ::getpid())) targets[rank] = pid;
  }
  auto asked = std::make_shared<std::vector<Asked>>();
  for (const auto& [rank, pid] : targets) {
    if (asked->size() < rendezvous::kMostReportedRanks) asked->push_back(ask(rank, pid));
  }
  timer_.expires_after(kAnswerTime);
  timer_.async_wait([this, asked, done = std::move(done)](boost::system::error_code stopped) {
    if (stopped) return;
    stacks_.clear();
    std::vector<rendezvous::RankStack> captured;
    for (const Asked& each : *asked) {
      captured.push_back({each.rank, text_of(each, stack_room(asked->size()))});
      stacks_[each.rank] = captured.back().text;
    }
    log(captured);
    done(std::move(captured));
  });
}

}  // namespace paceline::launcher
