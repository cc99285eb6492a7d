// SPDX-License-Identifier: Apache-2.0
// The part of DLPack's exchange by C functions (https://dmlc.github.io/dlpack, 1.3) that tells of tensors without making capsules: its layout, which
// the standard keeps within a major version. No code. A framework owns its table for as long as the process lives, and a description points into
// its tensor. Functions are called with Python's lock held; they answer 0, or -1 with an exception of Python's.
#pragma once

#include <cstdint>

namespace paceline::optim::device {

// DLTensor
struct ExchangedTensor {
  void* data = nullptr;
  std::int32_t device_type = 0;
  std::int32_t device_id = 0;
  std::int32_t dimensions = 0;
  std::uint8_t type_code = 0;
  std::uint8_t type_bits = 0;
  std::uint16_t type_lanes = 0;
  std::int64_t* shape = nullptr;
  std::int64_t* strides = nullptr;
  std::uint64_t byte_offset = 0;
};

// DLPackExchangeAPI; the functions that are not called here are of no type.
struct Exchange {
  std::uint32_t major;
  std::uint32_t minor;
  const void* older;
  void* allocate;
  void* managed_of;
  void* object_of;
  int (*tensor_of)(void* object, ExchangedTensor* out);
  void* stream_of;
};

static_assert(sizeof(ExchangedTensor) == 48 && sizeof(Exchange) == 56, "as DLPack lays them out");

}  // namespace paceline::optim::device
