// SPDX-License-Identifier: Apache-2.0
// What sums a lane's shards over hosts: the ranks of the same local place on all hosts have one
// each, and every shard is a chunk's part that this host's ranks have summed up in the memory of
// their lane's GPU. How it gets to the other hosts is a matter of each kind of lane.
//
// Ownership: the pool outlives it. Threads: one call at a time; `start`, `ready`, `lower` and
// `finish` by the thread of the call, `open` and `landed` by the driver's, which may not call the
// driver. Failure: told to the stage or the watch; `finish` returns all the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "../../cuda/driver.hpp"
#include "../call.hpp"
#include "../sum.hpp"

namespace paceline::comm::device {

// A lane's part of a chunk.
struct Shard {
  std::uint64_t begin;   // bytes from the chunk's beginning
  std::uint64_t count;   // elements
  cuda::Address result;  // where its sum lies
};

class Lane {
 public:
  // Whose shards it sums. Calls come from any thread.
  class Stage {
   public:
    // Where the driver refuses, this rank gives up, and so says `false`.
    virtual bool good(int status, const char* call) = 0;
    // Calls landed(number) when the stream that raises has come to here.
    virtual void expect_raised(std::uint32_t number) = 0;
    // So many chunks of all calls have a shard that is the sum over all hosts, and lies in the
    // device.
    virtual void finished(std::uint32_t chunks) = 0;
    // ready() may have changed.
    virtual void ring() = 0;

   protected:
    ~Stage() = default;
  };

  struct Work {
    Call call;
    Type type;
    std::uint32_t base;  // chunks of all calls before
    std::uint32_t chunks;
    std::function<Shard(std::uint32_t number)> shard;
  };

  virtual ~Lane() = default;

  virtual void start(Stage& stage, Work work) = 0;
  // Whether the lane needs the slot of the chunk's result no longer for the chunk that had it
  // before.
  [[nodiscard]] virtual bool ready(std::uint32_t number) const = 0;
  // Gives the adding stream what must follow this host's sum of the shard. False: the stage knows
  // why.
  virtual bool lower(std::uint32_t number) = 0;
  // So many shards have come through lower().
  virtual void open(std::uint32_t chunks) = 0;
  virtual void landed(std::uint32_t number) = 0;
  // The rank whose part of the oldest chunk is missing; none: this rank's own, or what its host
  // gives.
  [[nodiscard]] virtual std::optional<std::uint32_t> awaited() const = 0;
  // Until all that was started has been sent and received, or the communicator has failed.
  virtual void finish() = 0;

  // What a forked child closes.
  [[nodiscard]] virtual std::vector<int> files() const { return {}; }
};

}  // namespace paceline::comm::device
