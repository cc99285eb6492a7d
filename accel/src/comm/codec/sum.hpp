// SPDX-License-Identifier: Apache-2.0
// Element types and their sums, with the same bits on every processor. Additions happen in the
// order of the arguments. Halves are added in fp32 and rounded once, to nearest even. Integers
// wrap.
//
// Ownership: the caller's arrays; `target` may be one of the sources, at the same place. Threads:
// pure functions. Nothing fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace paceline::comm {

enum class Type : std::uint32_t { kF32, kF64, kF16, kBf16, kI32, kI64 };

bool is_type(std::uint32_t number);
std::size_t size_of(Type type);
const char* name_of(Type type);

// target[i] = sources[0][i] + sources[1][i] + …, from left to right.
void sum(Type type, std::byte* target, std::span<const std::byte* const> sources,
         std::size_t count);

}  // namespace paceline::comm
