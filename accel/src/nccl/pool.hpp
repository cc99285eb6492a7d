// SPDX-License-Identifier: Apache-2.0
// The places of operations that NCCL has started and the plugin's thread has not collected yet. The
// number of places is fixed, and none is allocated later.
//
// NCCL's threads take places and report events by handle; the plugin's thread looks at all places
// and frees those that have ended. A handle holds a place's number and its generation, never an
// address. So an event that is late, repeated or of another process is recognised and dropped.
//
// Thread-safe without locks: any thread may call start() and report events; one thread at a time
// calls visit(). If all places that start() tries are taken, it returns handle 0.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "operation.hpp"

namespace paceline::nccl {

using Handle = std::uint64_t;

class Pool {
 public:
  static constexpr std::size_t kPlaces = 4096;
  /// A handle for what needs one and has no place. All functions below drop it.
  static constexpr Handle kNoPlace = 4;

  /// `operation.serial` is filled in. `channels`: how many kernel channels will report; 0 if none
  /// will, or if NCCL does not tell.
  Handle start(Operation operation, std::uint32_t channels, std::uint64_t now_ns);

  /// Events of the operation. `handle` is its own, or one that these functions returned. They
  /// return 0, or false, if the handle is not one of a taken place.
  Handle start_kernel(Handle handle, std::uint64_t start_ns);
  Handle start_wait(Handle handle, std::uint64_t start_ns);
  void record_stop(Handle handle, std::uint64_t stop_ns);
  void stop(Handle handle, std::uint64_t now_ns);

  struct View {
    Operation operation;
    bool enqueued;             // NCCL has launched it
    bool follows;              // kernel channels report its end
    bool channels_ended;       // all that were announced, and as many as have begun
    bool channels_idle;        // as many have ended as have begun
    std::uint64_t started_ns;  // on this host's clock
  };
  /// Calls `keep(view, place)` for each taken place, in no order. Where it returns false the place
  /// is freed.
  template <typename Keep>
  void visit(Keep&& keep) {
    for (std::size_t place = 0; place < kPlaces; ++place) {
      const std::uint64_t tag = tags_[place].load(std::memory_order_acquire);
      if (state_of(tag) != kTaken) continue;
      if (!keep(view(places_[place]), place))
        tags_[place].store(generation_of(tag) << kStateBits | kFree, std::memory_order_release);
    }
  }

 private:
  // What a handle stands for.
  enum Kind : std::uint64_t { kNothing = 0, kOperation = 1, kKernel = 2, kWait = 3 };
  enum State : std::uint64_t { kFree = 0, kFilling = 1, kTaken = 2 };
  static constexpr unsigned kStateBits = 2;
  static constexpr unsigned kKindBits = 2;
  static constexpr unsigned kPlaceBits = 12;
  static constexpr std::uint64_t kMaxTries = 8;
  static_assert(kPlaces == std::size_t{1} << kPlaceBits);
  static_assert((kNoPlace & 3U) == kNothing);

  struct alignas(64) Place {
    Operation operation;
    std::uint64_t started_ns = 0;
    std::uint32_t channels = 0;
    std::atomic<std::uint32_t> begun{0};
    std::atomic<std::uint32_t> ended{0};
    std::atomic<std::uint32_t> waits{0};
    std::atomic<bool> enqueued{false};
    std::atomic<bool> broken{false};  // a channel had no usable times
    std::atomic<std::uint64_t> first_start{0};
    std::atomic<std::uint64_t> last_stop{0};
    std::atomic<std::uint64_t> first_wait{0};
    std::atomic<std::uint64_t> last_wait{0};
  };

  static State state_of(std::uint64_t tag) { return static_cast<State>(tag & 3U); }
  static std::uint64_t generation_of(std::uint64_t tag) { return tag >> kStateBits; }
  static Handle handle_of(std::uint64_t generation, std::size_t place, Kind kind) {
    return generation << (kPlaceBits + kKindBits) | place << kKindBits | kind;
  }
  static Kind kind_of(Handle handle) { return static_cast<Kind>(handle & 3U); }
  /// Null if the handle's operation is not in its place any more.
  Place* find(Handle handle);
  static View view(const Place& place);
  static void fill(Place& place, const Operation& operation, std::uint32_t channels,
                   std::uint64_t now_ns);

  std::atomic<std::uint64_t> next_{0};
  // Apart from the places, so that a look at all of them reads few cache lines.
  std::array<std::atomic<std::uint64_t>, kPlaces> tags_{};
  std::array<Place, kPlaces> places_{};
};

}  // namespace paceline::nccl
