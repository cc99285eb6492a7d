// SPDX-License-Identifier: Apache-2.0
// What a rank is asked to do: told to its peers, so that ranks which disagree learn it instead of
// mixing up their bytes.
//
// Ownership: a value, sent as it lies in memory (little-endian machines only). Threads: a value.
// Nothing fails.
#pragma once

#include <cstdint>
#include <string>

namespace paceline::comm {

enum class Kind : std::uint32_t {
  kNone,
  kAllreduce,
  kReduceScatter,
  kAllgather,
  kBroadcast,
  kBarrier,
  kAlltoall,
  kSparse,
  kSend,
  kReduce
};

struct Call {
  std::uint64_t sequence = 0;  // 1 for the first
  Kind kind = Kind::kNone;
  std::uint32_t type = 0;
  std::uint64_t count = 0;
  std::uint64_t root =
      // of a broadcast or a reduce; of an allreduce, the id of its coding; of an alltoall, 1 where
      // pieces differ
      0;

  bool operator==(const Call&) const = default;
};
static_assert(sizeof(Call) == 32);

std::string describe(const Call& call);

}  // namespace paceline::comm
