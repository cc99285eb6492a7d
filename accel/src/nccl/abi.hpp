// SPDX-License-Identifier: Apache-2.0
// NCCL's interface for profiler plugins, versions 3 to 7, as far as this plugin reads it. NCCL
// looks for symbols ncclProfiler_v7 down to ncclProfiler_v1 and takes the first one.
//
// Source: the headers src/include/plugin/nccl_profiler.h and src/include/plugin/profiler/
// profiler_v3.h to profiler_v7.h of github.com/NVIDIA/nccl. This file declares the layout anew, so
// that the plugin builds without CUDA and NCCL. Members that the plugin does not read are named
// `unused`. The assertions hold the sizes and offsets of those headers on 64-bit Linux.
#pragma once

#include <cstddef>
#include <cstdint>

namespace paceline::nccl::abi {

using Result = int;
inline constexpr Result kSuccess = 0;

// Types of events, and bits of the mask by which a plugin asks for them. NCCL also sends the groups
// and API calls that the asked events belong to.
inline constexpr std::uint64_t kGroup = 1U << 0;
inline constexpr std::uint64_t kCollective = 1U << 1;
inline constexpr std::uint64_t kPointToPoint = 1U << 2;
inline constexpr std::uint64_t kProxyOperation = 1U << 3;
inline constexpr std::uint64_t kKernelChannel = 1U << 6;
inline constexpr std::uint64_t kCollectiveCall = 1U << 9;
inline constexpr std::uint64_t kKernelPhase = 1U << 15;  // from version 7 on

inline constexpr std::uint8_t kPhaseInitialSync = 0;
inline constexpr int kKernelChannelStop = 22;  // states of events
inline constexpr int kKernelPhaseStop = 31;

struct Collective3 {
  const char* name;
  std::uint64_t comm_hash;  // 0 where NCCL is newer than version 3
  std::uint64_t sequence;   // NCCL's own count of this function
  const char* function;
  const void* unused_send;
  void* unused_receive;
  std::size_t count;
  int unused_root;
  const char* datatype;
  std::uint8_t channels;
  std::uint8_t unused_warps;
  const char* unused_algorithm;
  const char* unused_protocol;
};

struct Collective4 {
  std::uint64_t sequence;
  const char* function;
  const void* unused_send;
  void* unused_receive;
  std::size_t count;
  int unused_root;
  const char* datatype;
  std::uint8_t channels;
  std::uint8_t unused_warps;
  const char* unused_algorithm;
  const char* unused_protocol;
};

// Versions 5 to 7 append members that the plugin does not read.
struct PointToPoint3 {
  const char* name;
  std::uint64_t comm_hash;
  const char* function;
  void* unused_buffer;
  const char* datatype;
  std::size_t count;
  int peer;
};

struct PointToPoint4 {
  const char* function;
  void* unused_buffer;
  const char* datatype;
  std::size_t count;
  int peer;
  std::uint8_t channels;
};

struct KernelChannel3 {
  std::uint8_t channel;
};

struct KernelChannel4 {
  std::uint8_t channel;
  std::uint64_t timer;  // the GPU's clock, ns
};

struct KernelPhase7 {
  std::uint8_t channel;
  std::uint8_t phase;
  const char* unused_name;
  std::uint64_t timer;
};

template <typename Type, typename Collective, typename PointToPoint, typename KernelChannel,
          std::size_t Largest>
struct Descriptor {
  Type type;
  void* parent;
  int rank;
  union {
    Collective collective;
    PointToPoint point_to_point;
    KernelChannel kernel_channel;
    KernelPhase7 kernel_phase;  // version 7 only
    std::byte unused_largest[Largest];
  };
};

using Descriptor3 = Descriptor<std::uint8_t, Collective3, PointToPoint3, KernelChannel3, 96>;
using Descriptor4 = Descriptor<std::uint8_t, Collective4, PointToPoint4, KernelChannel4, 80>;
using Descriptor5 = Descriptor<std::uint64_t, Collective4, PointToPoint4, KernelChannel4, 88>;
using Descriptor6 = Descriptor5;
using Descriptor7 = Descriptor<std::uint64_t, Collective4, PointToPoint4, KernelChannel4, 112>;

union StateArguments {
  std::uint64_t kernel_timer;  // of kernel channels, from version 4 on, and of phases
};

using Logger = void (*)(int level, unsigned long flags, const char* file, int line,
                        const char* format, ...);

template <typename Init, typename Descriptor>
struct Table {
  const char* name;
  Init init;
  Result (*start_event)(void* context, void** handle, Descriptor* descriptor);
  Result (*stop_event)(void* handle);
  Result (*record_event_state)(void* handle, int state, StateArguments* arguments);
  Result (*finalize)(void* context);
};

using Init3 = Result (*)(void** context, int* mask);
using Init4 = Result (*)(void** context, int* mask, const char* name, std::uint64_t hash, int nodes,
                         int ranks, int rank, Logger logger);
using Init5 = Result (*)(void** context, std::uint64_t id, int* mask, const char* name, int nodes,
                         int ranks, int rank, Logger logger);

using Table3 = Table<Init3, Descriptor3>;
using Table4 = Table<Init4, Descriptor4>;
using Table5 = Table<Init5, Descriptor5>;
using Table6 = Table<Init5, Descriptor6>;
using Table7 = Table<Init5, Descriptor7>;

#define PACELINE_NCCL_AT(type, member, place) static_assert(offsetof(type, member) == (place))

static_assert(sizeof(Table3) == 48 && sizeof(Table7) == 48);
static_assert(sizeof(Collective3) == 96 && sizeof(Collective4) == 80);
static_assert(sizeof(Descriptor3) == 120 && sizeof(Descriptor4) == 104);
static_assert(sizeof(Descriptor5) == 112 && sizeof(Descriptor7) == 136);
PACELINE_NCCL_AT(Descriptor3, parent, 8);
PACELINE_NCCL_AT(Descriptor3, rank, 16);
PACELINE_NCCL_AT(Descriptor3, collective, 24);
PACELINE_NCCL_AT(Descriptor7, parent, 8);
PACELINE_NCCL_AT(Descriptor7, collective, 24);
PACELINE_NCCL_AT(Collective3, comm_hash, 8);
PACELINE_NCCL_AT(Collective3, count, 48);
PACELINE_NCCL_AT(Collective3, datatype, 64);
PACELINE_NCCL_AT(Collective3, channels, 72);
PACELINE_NCCL_AT(Collective4, function, 8);
PACELINE_NCCL_AT(Collective4, count, 32);
PACELINE_NCCL_AT(Collective4, datatype, 48);
PACELINE_NCCL_AT(Collective4, channels, 56);
PACELINE_NCCL_AT(PointToPoint3, count, 40);
PACELINE_NCCL_AT(PointToPoint4, datatype, 16);
PACELINE_NCCL_AT(PointToPoint4, count, 24);
PACELINE_NCCL_AT(PointToPoint4, channels, 36);
PACELINE_NCCL_AT(KernelChannel4, timer, 8);
PACELINE_NCCL_AT(KernelPhase7, phase, 1);
PACELINE_NCCL_AT(KernelPhase7, timer, 16);
#undef PACELINE_NCCL_AT

}  // namespace paceline::nccl::abi
