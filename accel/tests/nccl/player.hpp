// SPDX-License-Identifier: Apache-2.0
// Calls the plugin as NCCL does, for each version of the interface: the tables of entry.cpp,
// descriptors of zeros but for what the event has, groups and API calls that nobody asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "abi.hpp"
#include "paceline/step_record.h"

extern "C" {
extern paceline::nccl::abi::Table3 ncclProfiler_v3;
extern paceline::nccl::abi::Table4 ncclProfiler_v4;
extern paceline::nccl::abi::Table5 ncclProfiler_v5;
extern paceline::nccl::abi::Table6 ncclProfiler_v6;
extern paceline::nccl::abi::Table7 ncclProfiler_v7;
}

namespace paceline::check {

inline constexpr std::uint64_t kSecond = 1'000'000'000;

inline bool has(const paceline_step_record& facts, std::uint64_t bit) {
  return (facts.valid & bit) != 0;
}

/// What ncclGetVersion says in this process; 0: it fails.
inline int nccl_says = 0;

template <int kInterface>
class Nccl {
 public:
  Nccl(std::uint64_t id, int size, int rank) : id_(id), rank_(rank) {
    if constexpr (kInterface == 3) {
      table().init(&context, &mask);
    } else if constexpr (kInterface == 4) {
      table().init(&context, &mask, "a name", id, 1, size, rank, nullptr);
    } else {
      table().init(&context, id, &mask, nullptr, 1, size, rank, nullptr);
    }
  }

  static auto& table() {
    if constexpr (kInterface == 3) return ncclProfiler_v3;
    if constexpr (kInterface == 4) return ncclProfiler_v4;
    if constexpr (kInterface == 5) return ncclProfiler_v5;
    if constexpr (kInterface == 6) return ncclProfiler_v6;
    if constexpr (kInterface == 7) return ncclProfiler_v7;
  }
  using Table = std::remove_reference_t<decltype(table())>;

  void* collective(const char* function, std::size_t count, const char* datatype, int channels,
                   std::uint64_t sequence = 0) {
    auto descriptor = of(nccl::abi::kCollective);
    descriptor.collective.function = function;
    descriptor.collective.count = count;
    descriptor.collective.datatype = datatype;
    descriptor.collective.channels = static_cast<std::uint8_t>(channels);
    descriptor.collective.sequence = sequence;
    if constexpr (kInterface == 3) descriptor.collective.comm_hash = id_;
    return start_in_group(descriptor);
  }

  void* point_to_point(const char* function, std::size_t count, const char* datatype,
                       int channels) {
    auto descriptor = of(nccl::abi::kPointToPoint);
    descriptor.point_to_point.function = function;
    descriptor.point_to_point.count = count;
    descriptor.point_to_point.datatype = datatype;
    if constexpr (kInterface == 3) {
      descriptor.point_to_point.comm_hash = id_;
    } else {
      descriptor.point_to_point.channels = static_cast<std::uint8_t>(channels);
    }
    return start_in_group(descriptor);
  }

  void* kernel(void* parent, std::uint64_t timer) {
    auto descriptor = of(nccl::abi::kKernelChannel);
    descriptor.parent = parent;
    if constexpr (kInterface > 3) descriptor.kernel_channel.timer = timer;
    return start(descriptor);
  }

  void end_kernel(void* handle, std::uint64_t timer) {
    nccl::abi::StateArguments arguments{timer};
    if constexpr (kInterface > 3)
      table().record_event_state(handle, nccl::abi::kKernelChannelStop, &arguments);
    table().stop_event(handle);
  }

  /// One of the three phases of a symmetric kernel; version 7 only.
  void phase(void* kernel, int number, std::uint64_t start_at, std::uint64_t stop_at) {
    auto descriptor = of(nccl::abi::kKernelPhase);
    descriptor.parent = kernel;
    descriptor.kernel_phase.phase = static_cast<std::uint8_t>(number);
    descriptor.kernel_phase.timer = start_at;
    void* const handle = start(descriptor);
    if (handle == nullptr) return;
    nccl::abi::StateArguments arguments{stop_at};
    table().record_event_state(handle, nccl::abi::kKernelPhaseStop, &arguments);
    table().stop_event(handle);
  }

  void* other(std::uint64_t type, void* parent = nullptr) {
    auto descriptor = of(type);
    descriptor.parent = parent;
    return start(descriptor);
  }

  void stop(void* handle) { table().stop_event(handle); }
  void finalize() { table().finalize(context); }

  /// A collective from call to end, on one channel.
  void whole(const char* function, std::size_t count, std::uint64_t start_at,
             std::uint64_t stop_at) {
    void* const call = collective(function, count, "ncclFloat32", 1);
    stop(call);
    end_kernel(kernel(call, start_at), stop_at);
  }

  void* context = nullptr;
  int mask = -1;

 private:
  template <typename Init, typename Of>
  static Of descriptor_of(const nccl::abi::Table<Init, Of>&);
  using Descriptor = decltype(descriptor_of(std::declval<Table&>()));

  Descriptor of(std::uint64_t type) const {
    Descriptor descriptor{};
    descriptor.type = static_cast<decltype(descriptor.type)>(type);
    descriptor.rank = rank_;
    return descriptor;
  }

  /// NCCL 2.26 and 2.27, which have interfaces 3 and 4, send an operation only if the plugin gave
  /// a handle for its group.
  void* start_in_group(Descriptor& descriptor) const {
    if constexpr (kInterface <= 4) {
      auto group = of(nccl::abi::kGroup);
      descriptor.parent = start(group);
      if (descriptor.parent == nullptr) return nullptr;
      void* const call = start(descriptor);
      table().stop_event(descriptor.parent);
      return call;
    } else {
      return start(descriptor);
    }
  }

  void* start(Descriptor& descriptor) const {
    // NCCL hands over whatever the handle was before.
    void* handle = reinterpret_cast<void*>(0xdead);
    table().start_event(context, &handle, &descriptor);
    return handle;
  }

  std::uint64_t id_;
  int rank_;
};

}  // namespace paceline::check
