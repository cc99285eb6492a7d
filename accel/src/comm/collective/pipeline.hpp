// SPDX-License-Identifier: Apache-2.0
// Schedules an all-reduce inside a host in chunks: ranks copy in, channels add, ranks copy out, all
// at the same time on different chunks. Counters in cells that the ranks share say how far each
// rank is, and a doorbell in each cell wakes it. HostStage moves the bytes.
//
// Ownership: none; region and failure detector outlive it, and it outlives the detector's thread.
// Threads: one call at a time; any thread moves counters. Failure: false; the failure detector has
// the reason.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "comm/failure/call.hpp"
#include "comm/failure/failure_detector.hpp"
#include "comm/plan/plan.hpp"
#include "comm/transport/shm/region.hpp"

namespace paceline::comm {

class Pipeline {
 public:
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

 protected:
  // What a call repeats until it is done. `copy_in` and `advance` return whether they did anything.
  // `advance` runs only once all ranks are known to make the same call.
  struct Schedule {
    std::function<bool()> copy_in;  // copies one chunk in; this rank's call is in its cell by then
    std::function<bool()> advance;  // does all work that can be done now, copying in included
    std::function<bool()> is_done;
    // The rank whose data this rank's channel receives. Empty if this rank has no channel.
    std::function<std::uint32_t()> awaited_across;
  };

  Pipeline(const Topology& topology, Region& region, FailureDetector& detector);
  ~Pipeline() = default;

  bool run(const Call& call, const Schedule& schedule);
  // Ends a call of this many chunks.
  void next(std::uint32_t chunks);

  Cell& cell(std::uint32_t local) const { return region_.cell(local); }
  Cell& mine() const { return cell(topology_.local); }
  void ring_all() const;
  // Whether the counters of the first `cells` cells have all reached `count`.
  bool all_reached(std::atomic<std::uint32_t> Cell::* counter, std::uint32_t count,
                   std::uint32_t cells) const {
    return first_short(counter, count, cells) == cells;
  }

  const Topology& topology_;
  Region& region_;
  FailureDetector& detector_;
  const std::uint32_t ranks_;  // on this host
  const bool adds_;            // whether this rank has a shard to add up
  std::uint32_t base_ = 0;     // chunks of all earlier calls

 private:
  // The first cell whose counter has not reached `count`; `cells` if there is none.
  std::uint32_t first_short(std::atomic<std::uint32_t> Cell::* counter, std::uint32_t count,
                            std::uint32_t cells) const;
  // The rank that delays the oldest unfinished chunk. It asks in this order: which rank has not
  // copied it in, whose channel has not added it up, whose channel lacks another host's data, which
  // rank has not copied it out. If this rank's own channel lacks data, its sender is the answer.
  std::uint32_t awaited(const Schedule& schedule) const;

  std::uint32_t calls_ =
      0;  // calls done here; at the next call, all ranks have compared the one before
};

}  // namespace paceline::comm
