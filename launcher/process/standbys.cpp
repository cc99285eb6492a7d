// SPDX-License-Identifier: Apache-2.0
#include "launcher/process/standbys.hpp"

#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <iterator>
#include <limits>
#include <string_view>
#include <utility>

#include "common/contract/env.hpp"
#include "launcher/process/cgroup.hpp"

namespace paceline::process {
namespace {

constexpr std::chrono::seconds kLookInterval{1};
// A short job, or one that fails soon, pays for no standby.
constexpr std::chrono::seconds kSettled{10};
constexpr std::chrono::minutes kLongestImport{5};
// Above what the imports of PyTorch and of common libraries take in a process.
constexpr std::uint64_t kRoom = std::uint64_t{512} << 20;
constexpr std::uint64_t kLeastShare = 10;  // of the memory: a tenth stays free
constexpr timeval kPatience{1, 0};

bool same_command(const SpawnRequest& a, const SpawnRequest& b) {
  const auto limit = [](const SpawnRequest& request) {
    return request.open_files
               ? std::pair(request.open_files->rlim_cur, request.open_files->rlim_max)
               : std::pair<rlim_t, rlim_t>{};
  };
  return a.argv == b.argv && a.cpus == b.cpus && a.working_dir == b.working_dir &&
         a.open_files.has_value() == b.open_files.has_value() && limit(a) == limit(b);
}

bool send_all(int socket, std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = ::send(socket, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

std::string mebibytes(std::uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

}  // namespace

Standbys::~Standbys() {
  for (auto& [number, rank] : ranks_) end(rank);
}

void Standbys::watch(int local_rank, pid_t pid, const SpawnRequest& request,
                     std::filesystem::path file) {
  Rank& rank = ranks_[local_rank];
  end(rank);
  rank = {pid, request, std::move(file), std::nullopt, std::nullopt, false, false};
  all_ready_ = false;
}

void Standbys::prepare(int local_rank, const SpawnRequest& request, std::filesystem::path file,
                       const std::string& imports) {
  watch(local_rank, -1, request, std::move(file));
  Rank& rank = ranks_[local_rank];
  rank.told = true;
  rank.due = clock_.steady();
  std::ofstream out(rank.file, std::ios::trunc);
  out << "0\n" << imports;
  out.close();
  rank.refused = !out;  // a full disk: the first start here imports
}

std::optional<std::string> Standbys::told() {
  const auto found = ranks_.find(0);
  if (found == ranks_.end() || found->second.told) return std::nullopt;
  Rank& rank = found->second;
  if (!rank.due || clock_.steady() < *rank.due) return std::nullopt;
  rank.told = true;
  std::ifstream file(rank.file);
  file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');  // the process
  return std::string(std::istreambuf_iterator<char>(file), {});
}

void Standbys::end(Rank& rank) {
  if (!rank.standby) return;
  const pid_t pid = rank.standby->process.pid;
  ::kill(-pid, SIGKILL);
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  rank.standby.reset();
}

std::optional<Spawned> Standbys::take(int local_rank, const SpawnRequest& request) {
  const auto found = ranks_.find(local_rank);
  if (found == ranks_.end() || !found->second.standby) return std::nullopt;
  Rank& rank = found->second;
  hear(local_rank, rank);
  std::string environment;
  for (const std::string& variable : request.environment) environment += variable + '\0';
  if (!rank.standby->memory || !same_command(rank.request, request) ||
      !send_all(rank.standby->socket.get(), environment)) {
    end(rank);
    return std::nullopt;
  }
  Spawned taken = std::move(rank.standby->process);
  rank.standby.reset();  // closes the socket, which ends the message
  return taken;
}

bool Standbys::has(pid_t pid) const {
  return std::ranges::any_of(ranks_, [pid](const auto& entry) {
    return entry.second.standby && entry.second.standby->process.pid == pid;
  });
}

bool Standbys::any() const {
  return std::ranges::any_of(ranks_,
                             [](const auto& entry) { return entry.second.standby.has_value(); });
}

bool Standbys::on_exit(pid_t pid) {
  for (auto& [number, rank] : ranks_) {
    if (!rank.standby || rank.standby->process.pid != pid) continue;
    hear(number, rank);  // why, if it has said so
    rank.standby.reset();
    rank.refused = true;
    return true;
  }
  return false;
}

void Standbys::on_tick() {
  if (ranks_.empty()) return;
  const SteadyTime now = clock_.steady();
  for (auto& [number, rank] : ranks_) {
    if (rank.standby && !rank.standby->memory) hear(number, rank);
  }
  say_if_all_ready();
  if (now < next_look_) return;
  next_look_ = now + kLookInterval;
  const auto left = memory(root_);
  if (!left) return;
  const std::uint64_t reserve = left->total / kLeastShare;
  if (any() && left->left < reserve) {
    say_("memory is short (" + mebibytes(left->left) + " of " + mebibytes(left->total) +
         " left): the standby interpreters are ended");
    for (auto& [number, rank] : ranks_) {
      end(rank);
      rank.refused = true;
    }
  }
  bool one_starts = false;  // one at a time, so that the others' processors go on training
  for (auto& [number, rank] : ranks_) {
    look_for_file(rank, now);
    if (!rank.standby || rank.standby->memory) continue;
    one_starts = true;
    if (now - rank.standby->since < kLongestImport) continue;
    end(rank);
    rank.refused = true;
  }
  if (one_starts || left->left < reserve + kRoom) return;
  const auto next = std::ranges::find_if(ranks_, [now](const auto& entry) {
    const Rank& rank = entry.second;
    return !rank.standby && !rank.refused && rank.due && now >= *rank.due;
  });
  if (next != ranks_.end()) start(next->second);
}

/// The first line is the pid of the process that has written it. Only where that is the rank itself
/// does Python come to the code that holds it before the program.
void Standbys::look_for_file(Rank& rank, SteadyTime now) {
  if (rank.due || rank.refused) return;
  std::ifstream file(rank.file);
  pid_t writer = 0;
  if (!(file >> writer)) return;
  if (writer == rank.pid) {
    rank.due = now + kSettled;
  } else {
    rank.refused = true;
  }
}

void Standbys::start(Rank& rank) {
  std::array<int, 2> ends{};
  rank.refused = true;  // unless all that follows works
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) return;
  UniqueFd own(ends[0]);
  const UniqueFd theirs(ends[1]);
  ::setsockopt(own.get(), SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof kPatience);
  SpawnRequest request = rank.request;
  request.kept_fd = theirs.get();
  request.environment.push_back(std::string(env::kStandbySocket.name) + "=" +
                                std::to_string(theirs.get()));
  auto spawned = spawn(request);
  if (!spawned) return;
  rank.standby = Standby{*std::move(spawned), std::move(own), clock_.steady(), "", std::nullopt};
  rank.refused = false;
}

/// A standby says one line: "ready BYTES" or "unfit REASON".
void Standbys::hear(int local_rank, Rank& rank) {
  constexpr std::string_view kReady = "ready ";
  constexpr std::string_view kUnfit = "unfit ";
  constexpr std::size_t kLongest = 1024;
  Standby& standby = *rank.standby;
  std::array<char, 512> part{};
  for (;;) {
    const ssize_t size = ::recv(standby.socket.get(), part.data(), part.size(), MSG_DONTWAIT);
    if (size <= 0 || standby.said.size() > kLongest) break;
    standby.said.append(part.data(), static_cast<std::size_t>(size));
  }
  const std::size_t end = standby.said.find('\n');
  if (end == std::string::npos) return;
  const std::string_view line = std::string_view(standby.said).substr(0, end);
  if (line.starts_with(kReady)) {
    std::uint64_t bytes = 0;
    std::from_chars(line.data() + kReady.size(), line.data() + line.size(), bytes);
    standby.memory = bytes;
  } else if (line.starts_with(kUnfit)) {
    std::string refusal(line.substr(kUnfit.size()));
    rank.refused = true;
    if (refusal == last_refusal_) return;
    last_refusal_ = std::move(refusal);
    say_("no standby interpreter for local rank " + std::to_string(local_rank) + ": " +
         last_refusal_ + "; a restart imports");
  }
}

void Standbys::say_if_all_ready() {
  if (all_ready_ || ranks_.empty()) return;
  std::uint64_t most = 0;
  for (const auto& [number, rank] : ranks_) {
    if (!rank.standby || !rank.standby->memory) return;
    most = std::max(most, *rank.standby->memory);
  }
  all_ready_ = true;
  say_(std::to_string(ranks_.size()) + " standby interpreters are ready, " + mebibytes(most) +
       " each: a restart need not import (PACELINE_STANDBY)");
}

}  // namespace paceline::process
