// SPDX-License-Identifier: Apache-2.0
// RankSet: the processes of one attempt in this replica. It starts them, reports how each ended,
// and stops them: SIGTERM to their process groups, and after the grace period SIGKILL to all that
// is left. As PID 1 or subreaper it also reaps the orphans that they leave.
//
// Standbys are children, too. They are none of an attempt: no signal goes to them.
//
// Ownership: borrows the pump and the standbys. One thread: the event loop's. Call `on_child` after
// SIGCHLD and `on_tick` a few times a second. Failure: a rank that cannot be started is reported as
// a failure with the reason NotExecutable.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.hpp"
#include "common/subprocess/spawn.hpp"
#include "launcher/process/log_pump.hpp"
#include "launcher/process/standbys.hpp"
#include "launcher/rendezvous/message.hpp"

namespace paceline::process {

struct RankSpec {
  int rank = 0;
  int local_rank = 0;
  SpawnRequest request;
  // where the rank's Python reports the exception that ends it; "" for none
  std::filesystem::path failure_file;
  // where the rank's Python tells its standby what to import; "": it gets no standby
  std::filesystem::path standby_file = {};
};

class RankSet {
 public:
  struct Callbacks {
    std::function<void(int local_rank, const std::optional<rendezvous::Failure>&)> exited;
    std::function<void()> all_stopped;
    /// A process of `adopt` ended.
    std::function<void(pid_t, int status)> guest_exited = {};
  };

  RankSet(LogPump& pump, const Clock& clock, std::chrono::nanoseconds grace,
          std::filesystem::path root, Callbacks callbacks, Standbys* standbys = nullptr);

  void start(const std::vector<RankSpec>& ranks);
  /// While no rank is here: these may be started later, and import `imports`.
  void prepare(const std::vector<RankSpec>& ranks, const std::string& imports);
  /// Another child of this process, the leader of its process group: it is stopped with the ranks,
  /// and its end is none of a rank.
  void adopt(pid_t pid) { guests_.push_back(pid); }
  /// Calls all_stopped when no process is left, at once if there is none. The grace period counts
  /// from `since` on.
  void stop(std::optional<SteadyTime> since = {});
  void on_child();
  void on_tick();
  /// The failure nearest to the cause, among the ranks that failed after the start and before
  /// `stop`. A rank that an exception ends counts from the exception on, even while its process
  /// still lives.
  std::optional<rendezvous::Failure> first_failure();
  /// By rank: the process that was started for it, if it has not ended.
  std::map<int, pid_t> processes() const;

 private:
  struct Rank {
    int rank;
    int local_rank;
    pid_t pid;
    std::uint64_t out;
    std::uint64_t err;
    std::filesystem::path failure_file;
    bool exited = false;
  };
  struct Seen {
    rendezvous::Failure failure;
    SteadyTime at;
  };
  struct Ended {
    std::size_t index;
    int status;
  };

  Seen failure_of(const Rank& rank, int status, SteadyTime now);
  rendezvous::Failure told(const Seen& seen) const;
  std::vector<std::string> last_lines(const Rank& rank, std::chrono::milliseconds wait);
  void signal_all(int signal);
  std::filesystem::path list_of_children() const;
  std::vector<pid_t> children() const;
  bool any_alive() const;
  bool any_group() const;
  void check_stopped(bool no_children);

  LogPump& pump_;
  const Clock& clock_;
  const std::chrono::nanoseconds grace_;
  const std::filesystem::path root_;
  const Callbacks callbacks_;
  Standbys* const standbys_;
  std::vector<Rank> ranks_;
  std::vector<pid_t> guests_;  // that have not ended
  std::vector<Seen> failures_;
  std::optional<std::uint64_t> oom_before_;
  bool stopping_ = false;
  bool killed_ = false;
  SteadyTime deadline_{};
};

}  // namespace paceline::process
