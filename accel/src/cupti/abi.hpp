// SPDX-License-Identifier: Apache-2.0
// The part of CUPTI's binary interface that the kernel window uses, in declarations of our own.
// Source: NVIDIA's CUPTI documentation ("CUPTI Activity API", 12.9 and 13.x). Records of newer
// releases append fields, so a prefix of each record is declared.
// accel/tests/cupti/test_cupti_abi.py compares numbers, offsets and sizes with the headers of the
// releases 12 and 13.
#pragma once

#include <cstddef>
#include <cstdint>

namespace paceline::cupti {

inline constexpr int kSuccess = 0;               // CUPTI_SUCCESS
inline constexpr int kMultipleSubscribers = 39;  // CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED

// CUpti_ActivityKind. KERNEL (3) is not used: it makes kernels run one after another.
inline constexpr std::uint32_t kMemcpy = 1;
inline constexpr std::uint32_t kMemset = 2;
inline constexpr std::uint32_t kConcurrentKernel = 10;
inline constexpr std::uint32_t kOverhead = 17;
inline constexpr std::uint32_t kGraphTrace = 51;

inline constexpr std::uint8_t kHostToDevice = 1;  // CUPTI_ACTIVITY_MEMCPY_KIND_HTOD
inline constexpr std::uint8_t kHostToArray = 3;   // CUPTI_ACTIVITY_MEMCPY_KIND_HTOA
inline constexpr std::uint32_t kForced = 1;       // CUPTI_ACTIVITY_FLAG_FLUSH_FORCED

struct Activity {
  std::uint32_t kind;
};

struct Kernel {
  std::uint32_t kind;
  std::uint8_t not_used0[12];
  std::uint64_t start;  // 0, as are all unknown times
  std::uint64_t end;
  std::uint64_t completed;
  std::uint32_t device;
  std::uint32_t context;
  std::uint32_t stream;
  std::uint8_t not_used1[52];
  const char* name;
  void* reserved;
  std::uint64_t queued;  // with latency timestamps: the host launched it
  std::uint64_t submitted;
};
static_assert(offsetof(Kernel, start) == 16 && offsetof(Kernel, device) == 40);
static_assert(offsetof(Kernel, name) == 104 && offsetof(Kernel, queued) == 120);

struct Memcpy {
  std::uint32_t kind;
  std::uint8_t copy_kind;
  std::uint8_t source_kind;
  std::uint8_t target_kind;
  std::uint8_t flags;
  std::uint64_t bytes;
  std::uint64_t start;
  std::uint64_t end;
  std::uint32_t device;
  std::uint32_t context;
  std::uint32_t stream;
};
static_assert(offsetof(Memcpy, bytes) == 8 && offsetof(Memcpy, device) == 32);

struct Memset {
  std::uint32_t kind;
  std::uint32_t value;
  std::uint64_t bytes;
  std::uint64_t start;
  std::uint64_t end;
  std::uint32_t device;
  std::uint32_t context;
  std::uint32_t stream;
};
static_assert(offsetof(Memset, start) == 16 && offsetof(Memset, device) == 32);

struct GraphTrace {
  std::uint32_t kind;
  std::uint32_t correlation;
  std::uint64_t start;
  std::uint64_t end;
  std::uint32_t device;
  std::uint32_t graph;
  std::uint32_t context;
  std::uint32_t stream;
};
static_assert(offsetof(GraphTrace, start) == 8 && offsetof(GraphTrace, device) == 24);

struct Overhead {
  std::uint32_t kind;
  std::uint32_t overhead_kind;
  std::uint8_t not_used[16];
  std::uint64_t start;
  std::uint64_t end;
};
static_assert(offsetof(Overhead, start) == 24 && offsetof(Overhead, end) == 32);

using RequestBuffer = void (*)(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records);
using CompleteBuffer = void (*)(void* context, std::uint32_t stream, std::uint8_t* buffer,
                                std::size_t size, std::size_t valid);
using Callback = void (*)(void* user, std::uint32_t domain, std::uint32_t id, const void* data);

}  // namespace paceline::cupti
