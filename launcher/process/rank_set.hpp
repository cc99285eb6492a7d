// SPDX-License-Identifier: Apache-2.0
// RankSet: the processes of one attempt in this replica. Starts them, tells how each ended, and
// stops them all: SIGTERM to their groups, after the grace period SIGKILL to everything that is
// left of them. As PID 1 or subreaper it also reaps every orphan they leave.
//
// Ownership: borrows the pump. One thread: the one that runs the event loop; `on_child` is to be
// called after SIGCHLD, `on_tick` a few times a second. Failure: a rank that cannot be started is a
// RankEnd with the reason NotExecutable.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.hpp"
#include "launcher/process/log_pump.hpp"
#include "launcher/process/spawn.hpp"
#include "launcher/rendezvous/message.hpp"

namespace paceline::process {

struct RankSpec {
  int rank = 0;
  int local_rank = 0;
  SpawnRequest request;
  // where its Python says that an exception ends it; "" for none
  std::filesystem::path failure_file;
};

class RankSet {
 public:
  struct Callbacks {
    std::function<void(int local_rank, const std::optional<rendezvous::Failure>&)> exited;
    std::function<void()> all_stopped;
  };

  RankSet(LogPump& pump, const Clock& clock, std::chrono::nanoseconds grace,
          std::filesystem::path root, Callbacks callbacks);

  void start(const std::vector<RankSpec>& ranks);
  /// all_stopped follows when no process is left, at once where there is none.
  void stop();
  void on_child();
  void on_tick();
  bool any_alive() const;
  /// Of the ranks that have failed since the start, before `stop`, the one that is nearest to the
  /// cause: one that an exception ends counts from that moment, even while it still lives.
  std::optional<rendezvous::Failure> first_failure();

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
  bool any_group() const;
  void check_stopped(bool no_children);

  LogPump& pump_;
  const Clock& clock_;
  const std::chrono::nanoseconds grace_;
  const std::filesystem::path root_;
  const Callbacks callbacks_;
  std::vector<Rank> ranks_;
  std::vector<Seen> failures_;
  std::optional<std::uint64_t> oom_before_;
  bool stopping_ = false;
  bool killed_ = false;
  SteadyTime deadline_{};
};

}  // namespace paceline::process
