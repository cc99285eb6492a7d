// SPDX-License-Identifier: Apache-2.0
// The records that CUPTI delivers between begin() and end(): intervals of device work, in a fixed
// amount of memory. What does not fit is counted, never waited for.
//
// Ownership: one object per process lives as long as the process, because CUPTI may deliver a
// buffer at any time. Threads: one thread at a time calls the functions; CUPTI calls back on any
// thread, also on one of the program that launches a kernel. Failure: an error text; nothing is
// left enabled.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <mutex>
#include <string>
#include <vector>

#include "device/sweep.hpp"
#include "library.hpp"

namespace paceline::cupti {

/// Whether a kernel belongs to NCCL. `name` may be mangled, or null.
bool is_collective(const char* name);

class Collector {
 public:
  explicit Collector(const Library& library) : library_(library) {}
  Collector(const Collector&) = delete;
  Collector& operator=(const Collector&) = delete;

  std::expected<void, std::string> begin();
  /// Records no new work. Work that was launched before is still delivered.
  void end();
  /// Asks CUPTI for what has completed. With `forced` also for work that still runs, whose times
  /// are unknown then.
  void flush(bool forced);
  /// Another profiler has taken CUPTI over: nothing is disabled, and buffers that CUPTI holds are
  /// given up.
  void abandon();

  /// Whether CUPTI holds none of our buffers.
  bool all_returned() const;
  /// Times in CLOCK_MONOTONIC. Call it after end(). An error if CUPTI's clock cannot be compared.
  std::expected<std::vector<device::Interval>, std::string> intervals();
  /// Records that did not fit or had no times.
  std::uint64_t lost() const { return lost_.load(std::memory_order_relaxed); }
  /// CUPTI's own work in this window, as CUPTI tells it.
  std::uint64_t overhead_ns() const { return overhead_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::size_t kBuffers = 16;
  static constexpr std::size_t kBufferBytes = std::size_t{512} << 10U;
  static constexpr std::size_t kIntervals = std::size_t{1} << 17U;

  struct Clock {
    std::uint64_t monotonic = 0;
    std::uint64_t cupti = 0;
  };
  struct Buffer {
    std::uint8_t* memory = nullptr;
    bool lent = false;
  };

  static void request(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records);
  static void complete(void* context, std::uint32_t stream, std::uint8_t* buffer, std::size_t size,
                       std::size_t valid);
  bool allocate();
  Clock read_clock() const;
  void read(std::uint8_t* buffer, std::size_t valid);
  void take(const Activity& record);
  void add(const device::Interval& interval);

  static std::atomic<Collector*> active_;  // whose buffers CUPTI fills

  const Library library_;
  Clock began_;
  Clock ended_;
  std::vector<std::uint32_t> enabled_;
  bool abandoned_ = false;
  mutable std::mutex pool_mutex_;
  std::array<Buffer, kBuffers> pool_;
  std::mutex records_mutex_;
  std::vector<device::Interval> records_;  // in CUPTI's time
  std::atomic<std::uint64_t> lost_{0};
  std::atomic<std::uint64_t> overhead_{0};
};

}  // namespace paceline::cupti
