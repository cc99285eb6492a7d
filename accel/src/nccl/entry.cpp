// SPDX-License-Identifier: Apache-2.0
// The symbols that NCCL looks for, one for each version of its interface. Each function reads what
// its version's descriptor has, and makes one call into Profiler. All return success: an error of a
// plugin must not become one of a collective.
#include <cstdint>
#include <type_traits>

#include "abi.hpp"
#include "profiler.hpp"

namespace paceline::nccl {
namespace {

// Handles and contexts are numbers, and NCCL keeps them as pointers.
void* as_pointer(std::uint64_t number) { return reinterpret_cast<void*>(number); }
std::uint64_t as_number(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

template <int kInterface>
struct Plugin {
  using Descriptor = std::conditional_t<
      kInterface == 3, abi::Descriptor3,
      std::conditional_t<kInterface == 4, abi::Descriptor4,
                         std::conditional_t<kInterface == 7, abi::Descriptor7, abi::Descriptor5>>>;
  // Version 3 has no clock of the GPU.
  static constexpr bool kTimer = kInterface >= 4;

  static Call collective(const Descriptor& descriptor) {
    const auto& from = descriptor.collective;
    Call call{true, from.function, from.datatype, from.count, from.channels, from.sequence};
    if constexpr (kInterface == 3) {
      call.comm_hash = from.comm_hash;
      call.rank = descriptor.rank;
    }
    return call;
  }

  static Call point_to_point(const Descriptor& descriptor) {
    const auto& from = descriptor.point_to_point;
    Call call{false, from.function, from.datatype, from.count};
    if constexpr (kInterface == 3) {
      call.comm_hash = from.comm_hash;
      call.rank = descriptor.rank;
    } else {
      call.channels = from.channels;
    }
    return call;
  }

  static abi::Result start(void* context, void** handle, Descriptor* descriptor) {
    Profiler& profiler = Profiler::instance();
    Handle started = 0;
    const std::uint64_t parent = as_number(descriptor->parent);
    switch (std::uint64_t{descriptor->type}) {
      case abi::kCollective:
        started = profiler.start_call(as_number(context), collective(*descriptor));
        break;
      case abi::kPointToPoint:
        started = profiler.start_call(as_number(context), point_to_point(*descriptor));
        break;
      case abi::kKernelChannel:
        if constexpr (kTimer) {
          started = profiler.start_kernel(parent, descriptor->kernel_channel.timer, true);
        } else {
          started = profiler.start_kernel(parent, 0, false);
        }
        break;
      case abi::kKernelPhase:
        if constexpr (kInterface >= 7) {
          const abi::KernelPhase7& phase = descriptor->kernel_phase;
          if (phase.phase == abi::kPhaseInitialSync)
            started = profiler.start_wait(parent, phase.timer);
        }
        break;
      case abi::kGroup:
        // NCCL 2.26 and 2.27 send the operations of a group only if it has a handle.
        if constexpr (kInterface <= 4) started = profiler.start_group(as_number(context));
        break;
      default: break;  // other groups and API calls, which NCCL sends along
    }
    *handle = as_pointer(started);
    return abi::kSuccess;
  }

  static abi::Result stop(void* handle) {
    Profiler::instance().stop(as_number(handle), kTimer);
    return abi::kSuccess;
  }

  static abi::Result record(void* handle, int state, abi::StateArguments* arguments) {
    const bool stops =
        state == abi::kKernelChannelStop || (kInterface >= 7 && state == abi::kKernelPhaseStop);
    if (kTimer && stops && arguments != nullptr)
      Profiler::instance().record_stop(as_number(handle), arguments->kernel_timer);
    return abi::kSuccess;
  }

  static abi::Result finalize(void* context) {
    Profiler::instance().close(as_number(context));
    return abi::kSuccess;
  }

  static abi::Result init3(void** context, int* mask) {
    *context = as_pointer(
        Profiler::instance().open(kInterface, __builtin_return_address(0), 0, 0, 0, *mask));
    return abi::kSuccess;
  }

  static abi::Result init4(void** context, int* mask, const char*, std::uint64_t hash, int,
                           int ranks, int rank, abi::Logger) {
    *context = as_pointer(Profiler::instance().open(kInterface, __builtin_return_address(0), hash,
                                                    ranks, rank, *mask));
    return abi::kSuccess;
  }

  static abi::Result init5(void** context, std::uint64_t id, int* mask, const char*, int, int ranks,
                           int rank, abi::Logger) {
    *context = as_pointer(
        Profiler::instance().open(kInterface, __builtin_return_address(0), id, ranks, rank, *mask));
    return abi::kSuccess;
  }
};

constexpr const char* kName = "Paceline";

}  // namespace
}  // namespace paceline::nccl

#define PACELINE_NCCL_SYMBOL(version, initialise)                                           \
  __attribute__((                                                                           \
      visibility("default"))) paceline::nccl::abi::Table##version ncclProfiler_v##version { \
    paceline::nccl::kName, paceline::nccl::Plugin<version>::initialise,                     \
        paceline::nccl::Plugin<version>::start, paceline::nccl::Plugin<version>::stop,      \
        paceline::nccl::Plugin<version>::record, paceline::nccl::Plugin<version>::finalize  \
  }

extern "C" {
PACELINE_NCCL_SYMBOL(3, init3);
PACELINE_NCCL_SYMBOL(4, init4);
PACELINE_NCCL_SYMBOL(5, init5);
PACELINE_NCCL_SYMBOL(6, init5);
PACELINE_NCCL_SYMBOL(7, init5);
}
