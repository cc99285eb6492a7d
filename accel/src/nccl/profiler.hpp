// SPDX-License-Identifier: Apache-2.0
// What the plugin does with NCCL's events, whatever the version of the interface (entry.cpp).
//
// NCCL's threads call open, the start functions, record_stop, stop and close. They take no lock,
// allocate nothing and make no system call; only open and close may. A thread of the plugin
// collects what has ended, about 20 times a second, and tells the process's ring: amendments of
// steps, and how far the communicators are.
//
// One per process, never destroyed, because NCCL's threads may outlive main. In a forked child
// every function does nothing. Nothing fails: what has no place is counted, and its step says so.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <limits>
#include <mutex>

#include "communicators.hpp"
#include "ledger.hpp"
#include "pool.hpp"
#include "release.hpp"

namespace paceline::nccl {

/// A collective, a send or a receive, as NCCL describes it.
struct Call {
  bool collective = false;
  const char* function = nullptr;
  const char* datatype = nullptr;
  std::uint64_t count = 0;
  std::uint32_t channels = 0;   // kernel channels that will report
  std::uint64_t sequence = 0;   // NCCL's own number of this function
  std::uint64_t comm_hash = 0;  // interface 3 only
  int rank = 0;
};

class Profiler {
 public:
  static Profiler& instance();

  /// A communicator begins. `mask` receives the events to send. Says its line at the first one.
  Context open(int interface, const void* caller, std::uint64_t id, int size, int rank, int& mask);
  /// A communicator ends. Collects and tells what is left.
  void close(Context context);

  /// A handle that stands for nothing, or 0 if the communicator is not counted.
  Handle start_group(Context context);
  Handle start_call(Context context, const Call& call);
  /// `timer`: the GPU's clock; 0 where NCCL does not tell, and this host's clock is used.
  Handle start_kernel(Handle call, std::uint64_t timer, bool has_timer);
  Handle start_wait(Handle kernel, std::uint64_t timer) { return pool_.start_wait(kernel, timer); }
  void record_stop(Handle handle, std::uint64_t timer) { pool_.record_stop(handle, timer); }
  void stop(Handle handle, bool has_timer);

  /// Collects and tells. The plugin's thread calls it with this host's time.
  void report(std::uint64_t now_ns);

 private:
  static constexpr std::size_t kComms = Communicators::kPlaces;
  static constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();
  // More unfinished operations of one communicator, or of all, than a hang leaves: CUDA queues
  // about 1,000 launches.
  static constexpr std::uint64_t kMostOpen = 1024;
  static constexpr std::uint64_t kMostOpenOfAll = Pool::kPlaces / 2;

  // What report() finds out about a communicator.
  struct Progress {
    std::uint64_t enqueued = 0;  // before the look at the operations
    std::uint64_t first_open = kNone;
    std::uint64_t oldest_serial = kNone;  // of its unfinished collectives
    std::uint64_t open = 0;
    std::uint64_t launched = 0;  // of the open ones
    bool closed = false;
  };

  // How far this host's clock is before the GPU's, at most.
  struct GpuClock {
    std::int64_t ahead_ns = 0;
    std::uint64_t seen_ns = 0;  // 0: never
  };

  Profiler() = default;
  void begin(int interface, const void* caller);
  void start_thread();
  bool has_ended(const Pool::View& view, std::size_t place, std::uint64_t now_ns);
  bool times_match(const Pool::View& view, std::size_t communicator, std::uint64_t now_ns);
  void give_up_ends();
  void collect(std::uint64_t now_ns);
  void tell(const paceline_position& current, std::uint64_t now_ns);
  paceline_collective shown();

  std::once_flag begun_;
  Choice choice_;
  int interface_ = 0;
  std::atomic<bool> forked_{false};
  Communicators communicators_;
  Pool pool_;
  std::atomic<std::uint64_t> lost_{0};
  std::atomic<std::uint64_t> lost_step_{0};
  std::atomic<bool> said_full_{false};

  std::mutex report_mutex_;  // the rest belongs to report()
  Ledger ledger_;
  std::array<Progress, kComms> progress_{};
  std::array<std::uint64_t, kComms> newest_ended_{};  // serial
  // The ends that NCCL tells of these communicators are missing or wrong. Their operations end as
  // they are enqueued, without times.
  std::array<bool, kComms> ends_unknown_{};
  std::array<GpuClock, kComms> gpu_clocks_{};
  std::array<std::uint64_t, Pool::kPlaces> overtaken_ns_{};  // since when; 0: it is not
  std::uint64_t lost_told_ = 0;
  paceline_collective told_{};
  std::uint32_t told_epoch_ = 0;
};

}  // namespace paceline::nccl
