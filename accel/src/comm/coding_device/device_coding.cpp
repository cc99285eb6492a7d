// SPDX-License-Identifier: Apache-2.0
#include "device_coding.hpp"

#include <cstdint>

#include "../../cuda/kernel_set.hpp"
#include "../coding.hpp"
#include "table.hpp"

namespace paceline::comm::coding_device {
namespace {

// Encoding, then decoding: 16 bits, int8, 1-bit.
cuda::KernelSet& coding_kernels() {
  static cuda::KernelSet set("coding",
                             {"paceline_coding_encode_halves", "paceline_coding_encode_int8",
                              "paceline_coding_encode_signs", "paceline_coding_decode_halves",
                              "paceline_coding_decode_int8", "paceline_coding_decode_signs"});
  return set;
}
constexpr std::size_t kKinds = 3;

constexpr std::uint64_t kMostBlocks = 0x7fffffff;  // of a grid
constexpr std::uint64_t kMostValues =
    std::uint64_t{1}  // an address has no more, and sums of sizes stay far from their end
    << 48;

// The place among the kinds above; kKinds for what is no code of a GPU.
std::size_t kind_of(Codec codec) {
  switch (codec) {
    case Codec::kF16:
    case Codec::kBf16: return 0;
    case Codec::kInt8: return 1;
    case Codec::kOneBit: return 2;
    default: return kKinds;
  }
}

bool aligned_to(const void* pointer, std::uintptr_t bytes) {
  return pointer != nullptr && reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0;
}

}  // namespace

std::string open(int device, const std::string& folder) {
  return coding_kernels().open(device, folder);
}

int launch(Direction direction, const paceline_coding_device_call& call) {
  const bool encodes = direction == Direction::kEncode;
  if (call.size != sizeof call || !cuda::KernelSet::is_device(call.device)) return PACELINE_EINVAL;
  const auto codec = static_cast<Codec>(call.codec);
  const std::size_t kind = kind_of(codec);
  if (kind == kKinds || call.count > kMostValues) return PACELINE_EINVAL;
  if (encodes ? call.flags != 0 || call.sources != 0
              : (call.flags & ~PACELINE_CODING_ONTO) != 0 || call.sources == 0)
    return PACELINE_EINVAL;
  if (call.count == 0 || call.arrays == 0) return PACELINE_OK;
  if (!aligned_to(call.values, sizeof(float)) ||
      (encodes && !aligned_to(call.rest, sizeof(float))) ||
      !aligned_to(call.codes, kind == 0 ? sizeof(std::uint16_t) : 1))
    return PACELINE_EINVAL;
  // A block encodes one piece for each warp, of 1-bit a block of values; it decodes alike.
  const bool signs = encodes && codec == Codec::kOneBit;
  const std::uint64_t tile = signs ? kSignBlock : kWarps * kPieceValues;
  const std::uint64_t tiles = (call.count + tile - 1) / tile;
  if (call.arrays > kMostBlocks || tiles > kMostBlocks / call.arrays) return PACELINE_EINVAL;
  const cuda::Kernels* const kernels = coding_kernels().on(call.device);
  if (kernels == nullptr) return PACELINE_EDEVICE;
  Launch parameter{.values = call.values,
                   .rest = call.rest,
                   .codes = static_cast<unsigned char*>(call.codes),
                   .decoded = call.values,
                   .count = static_cast<Int64>(call.count),
                   .array_bytes = static_cast<Int64>(coded_bytes({.codec = codec}, call.count)),
                   .tiles = static_cast<Bits32>(tiles),
                   .sources = call.sources,
                   .brain = codec == Codec::kBf16 ? 1U : 0U,
                   .onto = (call.flags & PACELINE_CODING_ONTO) != 0 ? 1U : 0U};
  const std::size_t function = encodes ? kind : kKinds + kind;
  const auto blocks = static_cast<unsigned>(tiles * call.arrays);
  return kernels->launch(function, blocks, kThreads, call.stream, &parameter) == cuda::kSuccess
             ? PACELINE_OK
             : PACELINE_EDEVICE;
}

}  // namespace paceline::comm::coding_device
