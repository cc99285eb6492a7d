// SPDX-License-Identifier: Apache-2.0
// One collective call as a rank describes it to its peers. Ranks compare their calls, so that a
// mismatch becomes an error instead of mixed-up bytes.
//
// Ownership: a value, sent as it lies in memory (little-endian machines only). Threads: a value.
// Nothing fails.
#pragma once

#include <cstdint>
#include <string>

namespace paceline::comm {

enum class Kind : std::uint32_t {
  kNone,
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kBarrier,
  kAllToAll,
  kSparse,
  kSend,
  kReduce
};

struct Call {
  std::uint64_t sequence = 0;  // 1 for the first call
  Kind kind = Kind::kNone;
  std::uint32_t type = 0;
  std::uint64_t count = 0;
  std::uint64_t root =
      // The root of a broadcast or a reduce; the coding's id of an allreduce; for an alltoall, 1 if
      // pieces differ.
      0;

  bool operator==(const Call&) const = default;
};
static_assert(sizeof(Call) == 32);

std::string describe(const Call& call);

}  // namespace paceline::comm
