// SPDX-License-Identifier: Apache-2.0
// Codes of an array of floats in fewer bytes, each with error feedback. Start reading this room
// here; all_reduce_coded uses it for the bytes between hosts (`compression` of ddp_hook). The code
// says value + residual, and what it loses is the new residual. So a loss arrives late, but
// arrives.
//
// The same bytes decode to the same bits everywhere.
//
// - fp16, bf16: rounded values. A value out of range is clamped; the remainder comes later.
// - int8: q * scale for 256 values at a time, where scale is the largest absolute value / 127.
// - top-k: (index, value) pairs of the largest `keep` of a million values, at least one.
// - dgc: top-k of the accumulated momentum v, where u = momentum * u + value and v += u.
//   What is sent becomes 0 in u and v. The residual has v of all values, then u of all.
// - 1-bit: signs for 1024 values at a time, and the mean of their absolute values.
//
// Values that are not finite arrive as values that are not finite (with int8 and 1-bit the whole
// block becomes NaN), and leave no residual.
//
// Ownership: the caller's arrays, which do not overlap. Threads: pure functions. Nothing fails.
#pragma once

#include <cstddef>
#include <cstdint>

namespace paceline::comm {

enum class Codec : std::uint32_t { kNone, kF16, kBf16, kInt8, kTopK, kOneBit, kDgc };

struct Coding {
  Codec codec = Codec::kNone;
  std::uint32_t keep = 0;      // of a million values; only for top-k and dgc
  std::uint32_t momentum = 0;  // in thousandths; only for dgc

  bool operator==(const Coding&) const = default;
  // The number that identifies the coding to peers.
  std::uint64_t id() const {
    return static_cast<std::uint64_t>(codec) | std::uint64_t{keep} << 8 |
           std::uint64_t{momentum} << 40;
  }
  // Residual values for each value of the array.
  std::uint64_t residuals() const { return codec == Codec::kDgc ? 2 : 1; }
};

inline constexpr std::uint32_t kMillion = 1'000'000;
inline constexpr std::uint32_t kThousand = 1000;

bool is_coding(const Coding& coding);
const char* name_of(Codec codec);
// Whether each hop codes sums again. If not, each host's coded values go to all hosts.
bool recoded_on_the_way(Codec codec);

// The smallest unit that is coded on its own: its number of values, and its coded bytes.
struct Grain {
  std::size_t values;
  std::size_t bytes;
};
Grain grain_of(Codec codec);
std::size_t coded_bytes(const Coding& coding, std::uint64_t count);

// coded = values + residual; then residual = what the coding lost.
void encode(const Coding& coding, const float* values, float* residual, std::byte* coded,
            std::uint64_t count);
void decode(const Coding& coding, const std::byte* coded, float* values, std::uint64_t count);
// values += the decoded values.
void decode_add(const Coding& coding, const std::byte* coded, float* values, std::uint64_t count);
// coded = received + own + residual, for a codec where each hop codes sums again.
void recode(const Coding& coding, const std::byte* received, const float* own, float* residual,
            std::byte* coded, std::uint64_t count);

}  // namespace paceline::comm
