// SPDX-License-Identifier: Apache-2.0
// Ways of writing an array of floats in fewer bytes, each with error feedback: what is written is
// value + rest, and what gets lost is the new rest, so that it is only late and never gone. The
// same bytes decode to the same bits everywhere.
//
//   fp16, bf16   rounded; what is out of range is cut to it, the remainder comes later
//   int8         256 values at a time: q * scale, scale = the largest / 127
//   top-k        `keep` of a million values, at least one: (index, value) of the largest, ascending
//   by index dgc          top-k of what momentum has gathered: u = momentum * u + value, v += u,
//   and of what goes both are 0 then. `rest` has v of all,
//                then u of all
//   1-bit        1024 values at a time: signs, and the mean of absolute values
//
// What is not finite arrives as something that is not (with int8 and 1-bit all of its block, as
// NaN), and leaves no rest.
//
// Ownership: the caller's arrays, which do not overlap. Threads: pure functions. Nothing fails.
#pragma once

#include <cstddef>
#include <cstdint>

namespace paceline::comm {

enum class Codec : std::uint32_t { kNone, kF16, kBf16, kInt8, kTopK, kOneBit, kDgc };

struct Coding {
  Codec codec = Codec::kNone;
  std::uint32_t keep = 0;      // of a million; of top-k and dgc only
  std::uint32_t momentum = 0;  // thousandths; of dgc only

  bool operator==(const Coding&) const = default;
  // As a number that is told to peers.
  std::uint64_t id() const {
    return static_cast<std::uint64_t>(codec) | std::uint64_t{keep} << 8 |
           std::uint64_t{momentum} << 40;
  }
  // Values kept for each of the array.
  std::uint64_t rests() const { return codec == Codec::kDgc ? 2 : 1; }
};

inline constexpr std::uint32_t kMillion = 1'000'000;
inline constexpr std::uint32_t kThousand = 1000;

bool is_coding(const Coding& coding);
const char* name_of(Codec codec);
// Whether sums are coded again at each hop, or what each host has to say goes to all.
bool recoded_on_the_way(Codec codec);

// What can be coded without its neighbours: so many values, and the bytes that they become.
struct Grain {
  std::size_t values;
  std::size_t bytes;
};
Grain grain_of(Codec codec);
std::size_t coded_bytes(const Coding& coding, std::uint64_t count);

// coded = values + rest; rest = what that has lost.
void encode(const Coding& coding, const float* values, float* rest, std::byte* coded,
            std::uint64_t count);
void decode(const Coding& coding, const std::byte* coded, float* values, std::uint64_t count);
// values += what was coded.
void decode_add(const Coding& coding, const std::byte* coded, float* values, std::uint64_t count);
// coded = received + own + rest, of a codec that is recoded on the way.
void recode(const Coding& coding, const std::byte* received, const float* own, float* rest,
            std::byte* coded, std::uint64_t count);

}  // namespace paceline::comm
