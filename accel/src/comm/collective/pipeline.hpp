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
  // What a call is to do again and again. Each answers whether there was anything; `turn` waits
  // until all ranks are known to do the same.
  struct Turns {
    std::function<bool()> give;  // the first one after this rank's call has been told
    std::function<bool()> turn;  // whatever can be done now, giving included
    std::function<bool()> ended;
    // The rank that this one's channel waits for, maybe this one; empty where it has none.
    std::function<std::uint32_t()> across;
  };

  Pipeline(const Topology& topology, Region& region, FailureDetector& detector);
  ~Pipeline() = default;

  bool run(const Call& call, const Turns& turns);
  // Ends a call of so many chunks.
  void next(std::uint32_t chunks);

  Cell& cell(std::uint32_t local) const { return region_.cell(local); }
  Cell& mine() const { return cell(topology_.local); }
  void ring_all() const;
  // Whether the first `cells` cells have got so far.
  bool all_reached(std::atomic<std::uint32_t> Cell::* counter, std::uint32_t count,
                   std::uint32_t cells) const {
    return first_short(counter, count, cells) == cells;
  }

  const Topology& topology_;
  Region& region_;
  FailureDetector& detector_;
  const std::uint32_t ranks_;  // of this host
  const bool adds_;            // has a shard
  std::uint32_t base_ = 0;     // chunks of all calls before

 private:
  // The first cell that has not got so far; `cells`: none.
  std::uint32_t first_short(std::atomic<std::uint32_t> Cell::* counter, std::uint32_t count,
                            std::uint32_t cells) const;
  // The rank that holds up the oldest chunk which not all have: who has not given it, else whose
  // channel has not added it up or lacks it of other hosts, else who has not taken it out.
  std::uint32_t awaited(const Turns& turns) const;

  std::uint32_t calls_ = 0;  // done here: for the next, all have compared the one before
};

}  // namespace paceline::comm
