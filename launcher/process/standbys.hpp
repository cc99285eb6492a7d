// SPDX-License-Identifier: Apache-2.0
// Standbys: for each Python rank of this replica an interpreter that has made the rank's imports
// before the rank starts again (docs/designs/recovery/standby.md). A standby is the rank's own
// command, held before its program runs; paceline/_inject/standby.py is the code inside.
//
// A rank's Python writes a file after its first steps. A while later its standby is started, one at
// a time. The start of the next attempt takes it. Without enough memory there is none.
//
// A replica that stands by for others has no ranks yet. It is told what a rank elsewhere imports.
//
// Owns the processes until they are taken, and kills them at its end. One thread: the event loop's,
// as RankSet's. Failure: there is no standby, and the rank is started as usual.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "common/base/clock.hpp"
#include "common/base/unique_fd.hpp"
#include "common/subprocess/spawn.hpp"

namespace paceline::process {

class Standbys {
 public:
  using Say = std::function<void(const std::string& line)>;

  Standbys(const Clock& clock, std::filesystem::path root, Say say)
      : clock_(clock), root_(std::move(root)), say_(std::move(say)) {}
  ~Standbys();
  Standbys(const Standbys&) = delete;
  Standbys& operator=(const Standbys&) = delete;

  /// The rank runs, and may get a standby once it has written `file`.
  void watch(int local_rank, pid_t pid, const SpawnRequest& request, std::filesystem::path file);
  /// The rank may be started here later, and imports what `imports` says: its standby starts now.
  /// Writes `file`, the first line of which is the number of no process.
  void prepare(int local_rank, const SpawnRequest& request, std::filesystem::path file,
               const std::string& imports);
  /// What local rank 0 imports, once it has trained for a while; once in each attempt.
  std::optional<std::string> told();
  /// The standby of the rank goes on as the rank, in this environment. nullopt if there is none
  /// that is ready and was started by the same command.
  std::optional<Spawned> take(int local_rank, const SpawnRequest& request);
  bool has(pid_t pid) const;
  bool any() const;
  /// False if the process, which has ended, was no standby.
  bool on_exit(pid_t pid);
  void on_tick();

 private:
  struct Standby {
    Spawned process;
    UniqueFd socket;
    SteadyTime since;
    std::string said;                     // by the standby
    std::optional<std::uint64_t> memory;  // its own, once it is ready
  };
  struct Rank {
    pid_t pid = -1;
    SpawnRequest request;
    std::filesystem::path file;
    std::optional<SteadyTime> due;  // when the standby may start; nullopt: nothing is written yet
    std::optional<Standby> standby;
    bool refused = false;  // in this attempt no standby is tried any more
    bool told = false;     // what it imports
  };

  void look_for_file(Rank& rank, SteadyTime now);
  void start(Rank& rank);
  void hear(int local_rank, Rank& rank);
  void say_if_all_ready();
  static void end(Rank& rank);

  const Clock& clock_;
  const std::filesystem::path root_;
  const Say say_;
  std::map<int, Rank> ranks_;  // by local rank
  std::string last_refusal_;
  bool all_ready_ = false;
  SteadyTime next_look_{};
};

}  // namespace paceline::process
