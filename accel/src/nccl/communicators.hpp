// SPDX-License-Identifier: Apache-2.0
// NCCL's communicators of this process: who they are, and how many collectives each has enqueued.
//
// The number of places is fixed. NCCL's threads open, count and close; the plugin's thread reads,
// and frees the place of a closed communicator. A context is a place's number and generation, so
// one of a communicator that is gone, or of another process, is recognised. Thread-safe without
// locks. If all places are taken, open() returns context 0 and that communicator is not counted.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace paceline::nccl {

using Context = std::uint64_t;

/// Functions of NCCL that are told apart here. Of the others, payload and number are counted alike.
enum class Function : std::uint8_t {
  kOther,
  kAllGather,
  kAllReduce,
  kBroadcast,
  kReduce,
  kReduceScatter
};
inline constexpr std::size_t kFunctions = 6;

struct Communicator {
  std::atomic<std::uint64_t> tag{0};  // generation and state
  // NCCL's id, the same on all ranks. Interface 3 tells it, and the rank, with the first
  // collective.
  std::atomic<std::uint64_t> id{0};
  std::atomic<std::uint32_t> size{0};
  std::atomic<std::uint32_t> rank{0};
  std::atomic<std::uint64_t> enqueued{0};  // collectives
  std::atomic<std::uint64_t> last_used_ns{0};
  std::atomic<bool> followed{false};  // kernel channels report the end of the last one
  // NCCL's own count of a function did not advance between two collectives: they come from CUDA
  // graphs, which need not tell the plugin of all ranks.
  std::atomic<bool> replayed{false};
  std::array<std::atomic<std::uint64_t>, kFunctions> counted{};  // NCCL's count of each, plus 1
};

class Communicators {
 public:
  static constexpr std::size_t kPlaces = 256;

  Context open(std::uint64_t id, std::uint32_t size, std::uint32_t rank);
  void close(Context context);
  /// Null if the communicator is not open.
  Communicator* find(Context context);

  /// Calls `visit(communicator, place, closed)` for each that is open, or closed and not freed.
  template <typename Visit>
  void visit(Visit&& visit) {
    for (std::size_t place = 0; place < kPlaces; ++place) {
      const std::uint64_t state = all_[place].tag.load(std::memory_order_acquire) & 3U;
      if (state == kOpen || state == kClosed) visit(all_[place], place, state == kClosed);
    }
  }
  void free(std::size_t place);
  /// Where a context's communicator is, whether it still lives or not.
  static std::size_t place_of(Context context) { return context >> 1U & (kPlaces - 1); }

 private:
  enum State : std::uint64_t { kFree = 0, kFilling = 1, kOpen = 2, kClosed = 3 };
  static constexpr unsigned kShift = 9;  // 8 bits of the place, above a bit that is always set

  std::array<Communicator, kPlaces> all_{};
};

}  // namespace paceline::nccl
