// SPDX-License-Identifier: Apache-2.0
#include "launcher/process/rank_set.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <utility>

#include "launcher/process/cgroup.hpp"
#include "launcher/process/failure_file.hpp"

namespace paceline::process {
namespace {

using rendezvous::Cause;
using rendezvous::Failure;

constexpr std::chrono::milliseconds kDrain{150};
constexpr std::chrono::seconds kAfterKill{2};

// The signal that ended the rank, or that ended the child of its shell, which then exits with 128 +
// signal; 0 for none.
int killer_of(int status) {
  constexpr int kShell = 128;
  if (WIFSIGNALED(status)) return WTERMSIG(status);
  const int signal = WEXITSTATUS(status) - kShell;
  return signal > 0 && signal < NSIG ? signal : 0;
}

Result<Spawned> start_process(const RankSpec& spec, Standbys* standbys) {
  if (standbys != nullptr) {
    if (auto taken = standbys->take(spec.local_rank, spec.request)) return *std::move(taken);
  }
  return spawn(spec.request);
}

}  // namespace

RankSet::RankSet(LogPump& pump, const Clock& clock, std::chrono::nanoseconds grace,
                 std::filesystem::path root, Callbacks callbacks, Standbys* standbys)
    : pump_(pump),
      clock_(clock),
      grace_(grace),
      root_(std::move(root)),
      callbacks_(std::move(callbacks)),
      standbys_(standbys) {}

/// A kernel may have none.
std::filesystem::path RankSet::list_of_children() const {
  const std::string self = std::to_string(::getpid());
  return root_ / "proc" / self / "task" / self / "children";
}

/// The children of this process that belong to the attempt: the ranks, and the orphans that it
/// adopted.
std::vector<pid_t> RankSet::children() const {
  std::ifstream file(list_of_children());
  std::vector<pid_t> pids;
  for (pid_t pid = 0; file >> pid;) {
    if (standbys_ == nullptr || !standbys_->has(pid)) pids.push_back(pid);
  }
  return pids;
}

void RankSet::start(const std::vector<RankSpec>& ranks) {
  ranks_.clear();
  failures_.clear();
  stopping_ = false;
  killed_ = false;
  oom_before_ = oom_kills(root_);
  for (const RankSpec& spec : ranks) {
    std::error_code ignored;
    std::filesystem::remove(spec.failure_file, ignored);  // may be left from an earlier attempt
    std::filesystem::remove(spec.standby_file, ignored);
    auto spawned = start_process(spec, standbys_);
    if (!spawned) {
      // The other ranks of this replica would wait for this one for ever: report it, so that the
      // gang's server ends the attempt.
      Failure failure;
      failure.local_rank = spec.local_rank;
      failure.exit_code = 127;
      failure.reason = "NotExecutable";
      failure.last_lines = {spawned.error().message};
      callbacks_.exited(spec.local_rank, failure);
      return;
    }
    const std::string prefix = "[" + std::to_string(spec.rank) + "] ";
    const auto out = pump_.add(std::move(spawned->out), prefix, STDOUT_FILENO);
    const auto err = pump_.add(std::move(spawned->err), prefix, STDERR_FILENO);
    ranks_.push_back({spec.rank, spec.local_rank, spawned->pid, out, err, spec.failure_file});
    // A kernel that does not list children gets no standbys: orphans could not be told from them.
    if (standbys_ != nullptr && !spec.standby_file.empty() && !children().empty())
      standbys_->watch(spec.local_rank, spawned->pid, spec.request, spec.standby_file);
  }
}

void RankSet::prepare(const std::vector<RankSpec>& ranks, const std::string& imports) {
  std::error_code error;
  if (standbys_ == nullptr || any_alive() || !std::filesystem::exists(list_of_children(), error))
    return;
  for (const RankSpec& spec : ranks) {
    if (!spec.standby_file.empty())
      standbys_->prepare(spec.local_rank, spec.request, spec.standby_file, imports);
  }
}

bool RankSet::any_alive() const {
  return !guests_.empty() ||
         std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return !rank.exited; });
}

bool RankSet::any_group() const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [](const Rank& rank) { return ::kill(-rank.pid, 0) == 0; });
}

RankSet::Seen RankSet::failure_of(const Rank& rank, int status, SteadyTime now) {
  Seen seen{{}, now};
  Failure& failure = seen.failure;
  failure.local_rank = rank.local_rank;
  if (WIFSIGNALED(status)) {
    failure.signal = WTERMSIG(status);
    failure.reason = "Signal";
  } else {
    failure.exit_code = WEXITSTATUS(status);
    failure.reason = "Exit";
  }
  const int killer = killer_of(status);
  const auto kills = oom_kills(root_);
  if (killer == SIGKILL && kills && oom_before_ && *kills > *oom_before_) {
    failure.oom = true;
    failure.reason = "OOMKilled";
  }
  const auto raised = read_failure_file(rank.failure_file, now);
  if (killer == SIGKILL) {
    // Even if it raised an exception before: neither the program's own error nor a lost peer kills
    // it by this signal.
    failure.cause = Cause::kKilled;
  } else if (raised) {
    // However the process ended: a program that an exception ends may crash while it exits.
    failure.cause = raised->cause;
    seen.at = raised->at;
  } else if (killer != 0 && killer != SIGABRT) {
    // A program aborts by its own decision, for example a watchdog that lost a peer.
    failure.cause = Cause::kKilled;
  }
  failure.last_lines = last_lines(rank, kDrain);
  return seen;
}

std::vector<std::string> RankSet::last_lines(const Rank& rank, std::chrono::milliseconds wait) {
  // A program writes the reason of its death to stderr. Use stdout only if stderr is empty.
  auto lines = pump_.last_lines(rank.err, wait);
  return lines.empty() ? pump_.last_lines(rank.out, wait) : lines;
}

Failure RankSet::told(const Seen& seen) const {
  Failure failure = seen.failure;
  failure.ago = clock_.steady() - seen.at;
  return failure;
}

std::optional<Failure> RankSet::first_failure() {
  std::vector<Seen> all = failures_;
  for (const Rank& rank : ranks_) {
    if (rank.exited) continue;
    const auto raised = read_failure_file(rank.failure_file, clock_.steady());
    // The exception was in a helper process, which did not end the rank.
    if (!raised || !runs_in(root_, raised->pid, rank.pid)) continue;
    Failure failure;
    failure.local_rank = rank.local_rank;
    failure.exit_code = 1;  // Python's exit code after an exception
    failure.reason = "Exit";
    failure.cause = raised->cause;
    failure.last_lines = last_lines(rank, {});
    all.push_back({std::move(failure), raised->at});
  }
  const auto order = [](const Seen& seen) { return std::pair(seen.failure.cause, seen.at); };
  const auto first = std::min_element(
      all.begin(), all.end(), [&](const Seen& a, const Seen& b) { return order(a) < order(b); });
  return first == all.end() ? std::nullopt : std::optional(told(*first));
}

std::map<int, pid_t> RankSet::processes() const {
  std::map<int, pid_t> alive;
  for (const Rank& rank : ranks_) {
    if (!rank.exited) alive[rank.rank] = rank.pid;
  }
  return alive;
}

void RankSet::on_child() {
  const SteadyTime now = clock_.steady();
  std::vector<Ended> ended;
  bool no_children = false;
  while (true) {
    int status = 0;
    const pid_t pid = ::waitpid(-1, &status, WNOHANG);
    if (pid < 0 && errno == EINTR) continue;
    if (pid <= 0) {
      no_children = pid < 0 || (standbys_ != nullptr && standbys_->any() && children().empty());
      break;
    }
    if (standbys_ != nullptr && standbys_->on_exit(pid)) continue;
    if (std::erase(guests_, pid) > 0) callbacks_.guest_exited(pid, status);
    for (std::size_t index = 0; index < ranks_.size(); ++index) {
      if (ranks_[index].pid == pid && !ranks_[index].exited) {
        ranks_[index].exited = true;
        ended.push_back({index, status});
      }
    }
  }
  // If several ranks ended at once, one that a signal killed is the cause; the others lost their
  // peer.
  for (const bool by_signal : {true, false}) {
    for (const Ended& end : ended) {
      if (stopping_ || WIFSIGNALED(end.status) != by_signal) continue;
      const Rank rank = ranks_[end.index];
      if (WIFEXITED(end.status) && WEXITSTATUS(end.status) == 0) {
        callbacks_.exited(rank.local_rank, std::nullopt);
        continue;
      }
      failures_.push_back(failure_of(rank, end.status, now));
      callbacks_.exited(rank.local_rank, told(failures_.back()));
    }
  }
  if (stopping_) check_stopped(no_children);
}

void RankSet::signal_all(int signal) {
  for (const Rank& rank : ranks_) ::kill(-rank.pid, signal);
  for (const pid_t guest : guests_) ::kill(-guest, signal);
  for (const pid_t pid : children()) {
    const bool signalled = std::ranges::find(guests_, pid) != guests_.end() ||
                           std::any_of(ranks_.begin(), ranks_.end(),
                                       [&](const Rank& rank) { return rank.pid == pid; });
    if (!signalled) ::kill(pid, signal);
  }
}

void RankSet::stop(std::optional<SteadyTime> since) {
  if (stopping_) return;
  stopping_ = true;
  killed_ = false;
  deadline_ =
      since.value_or(clock_.steady()) + std::chrono::duration_cast<SteadyTime::duration>(grace_);
  signal_all(SIGTERM);
  on_child();
}

void RankSet::check_stopped(bool no_children) {
  const SteadyTime now = clock_.steady();
  if (!no_children && now >= deadline_) {
    if (!killed_) {
      killed_ = true;
      deadline_ = now + kAfterKill;
      signal_all(SIGKILL);
      return;
    }
    signal_all(SIGKILL);
    // The rest cannot be killed, because it hangs in the kernel. If no rank is alive, do not wait
    // for it.
    if (any_alive()) return;
    no_children = true;
  }
  if (!no_children) {
    // A process that left its rank's group and outlived the rank has no parent that waits for it. A
    // process still in the group has its grace period left.
    if (!any_alive() && !any_group()) signal_all(SIGKILL);
    return;
  }
  stopping_ = false;
  ranks_.clear();
  callbacks_.all_stopped();
}

void RankSet::on_tick() {
  if (standbys_ != nullptr && !stopping_) standbys_->on_tick();
  if (stopping_) on_child();
}

}  // namespace paceline::process
