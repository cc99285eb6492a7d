// SPDX-License-Identifier: Apache-2.0
// The pace of an allreduce inside a host, in chunks: ranks give, lanes add, ranks take, all at the
// same time on different chunks, kDepth of them at most. Counters in cells that the ranks share say
// how far each has come, and a bell in each wakes it; the bytes are a stage's own business.
//
// Ownership: none; region and watch outlive it, and its object the watch's thread. Threads: one
// call at a time; counters move on any. Failure: false, the watch knows why.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "comm/failure/call.hpp"
#include "comm/failure/failure_detector.hpp"
#include "comm/plan/plan.hpp"
#include "comm/transport/shm/region.hpp"

namespace paceline::comm {

class Pace {
 public:
  Pace(const Pace&) = delete;
  Pace& operator=(const Pace&) = delete;

 protected:
  // What a call is to do again and again. Each answers whether there was anything; `turn` waits
  // until all ranks are known to do the same.
  struct Turns {
    std::function<bool()> give;  // the first one after this rank's call has been told
    std::function<bool()> turn;  // whatever can be done now, giving included
    std::function<bool()> ended;
    std::function<bool()> quiet;  // nobody has rung for a while; false ends the call. May be empty
    // The rank that this one's lane waits for, maybe this one; empty where it has none.
    std::function<std::uint32_t()> across;
  };

  Pace(const Topology& topology, Region& region, Watch& watch, Side side);
  ~Pace() = default;

  bool run(const Call& call, const Turns& turns);
  // Ends a call of so many chunks.
  void next(std::uint32_t chunks);

  Cell& cell(std::uint32_t local) const { return region_.cell(local, side_); }
  Cell& mine() const { return cell(topology_.local); }
  void ring_all() const;
  // Whether the first `cells` cells have got so far.
  bool all_reached(std::atomic<std::uint32_t> Cell::* counter, std::uint32_t count,
                   std::uint32_t cells) const {
    return first_short(counter, count, cells) == cells;
  }

  const Topology& topology_;
  Region& region_;
  Watch& watch_;
  const std::uint32_t ranks_;  // of this host
  const bool adds_;            // has a shard
  std::uint32_t base_ = 0;     // chunks of all calls before

 private:
  // The first cell that has not got so far; `cells`: none.
  std::uint32_t first_short(std::atomic<std::uint32_t> Cell::* counter, std::uint32_t count,
                            std::uint32_t cells) const;
  // The rank that holds up the oldest chunk which not all have: who has not given it, else whose
  // lane has not added it up or lacks it of other hosts, else who has not taken it out.
  std::uint32_t awaited(const Turns& turns) const;

  const Side side_;
  std::uint32_t calls_ = 0;  // done here: for the next, all have compared the one before
};

}  // namespace paceline::comm
