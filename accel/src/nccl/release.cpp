// SPDX-License-Identifier: Apache-2.0
#include "release.hpp"

#include <dlfcn.h>
#include <sys/statvfs.h>

#include <array>

#include "abi.hpp"

namespace paceline::nccl {
namespace {

constexpr int kCounts = static_cast<int>(abi::kCollective | abi::kPointToPoint);
constexpr int kTimes = kCounts | static_cast<int>(abi::kKernelChannel);
constexpr int kPhases = kTimes | static_cast<int>(abi::kKernelPhase);

constexpr int kNewestTested = 23299;  // of 2.32
// From 2.31 on NCCL has a thread for kernel events. Before, they go through its network proxy.
constexpr int kOwnThread = 23100;
// With 64 MiB of /dev/shm the proxy of such a release crashes at its first kernel event; with 1 GiB
// it works.
constexpr std::uint64_t kEnoughSharedMemory = std::uint64_t{1} << 30U;

struct Fault {
  int first;
  int last;
  int mask;
  const char* reason;
};

constexpr std::array kFaults{
    Fault{0, 22799, kCounts, "with kernel events this release fails in all-to-all"},
    Fault{22803, 22808, 0, "NVIDIA's resiliency extension avoids this release"},
    Fault{23000, 23099, kCounts, "with kernel events this release crashes in all-to-all"},
    Fault{23100, 23199, kCounts, "kernel events cost this release 4 to 13 % of small all-reduces"},
};

std::string dotted(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

std::string line(int version, int mask, const std::string& why) {
  return "NCCL " + (version == 0 ? "of an unknown release" : dotted(version)) +
         ": collectives are " + (mask == 0 ? "not counted" : "counted, not timed") + " (" + why +
         ")";
}

}  // namespace

Choice choose(int interface, const Machine& machine) {
  const int version = machine.nccl_version;
  const int most = interface >= 7 ? kPhases : kTimes;
  if (version == 0) {
    // 2.28, which has releases to avoid, has interface 5.
    const int mask = interface == 5 ? 0 : kCounts;
    return {mask, line(0, mask, "some releases are faulty")};
  }
  for (const Fault& fault : kFaults) {
    if (version >= fault.first && version <= fault.last)
      return {fault.mask, line(version, fault.mask, fault.reason)};
  }
  if (version < kOwnThread && machine.shared_memory_bytes < kEnoughSharedMemory) {
    const auto mib = std::to_string(machine.shared_memory_bytes >> 20U);
    return {kCounts,
            line(version, kCounts,
                 "/dev/shm has " + mib + " MiB, and this release needs 1024 to time them")};
  }
  if (version > kNewestTested)
    return {most, "NCCL " + dotted(version) + " is newer than 2.32, the newest tested: version " +
                      std::to_string(interface) + " of its profiler interface is used"};
  return {most, ""};
}

int nccl_version(const void* caller) {
  using GetVersion = int (*)(int*);
  void* symbol = nullptr;
  Dl_info where{};
  if (::dladdr(caller, &where) != 0 && where.dli_fname != nullptr) {
    // NCCL is often loaded with RTLD_LOCAL, so that only its own handle finds its functions.
    if (void* library = ::dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD); library != nullptr) {
      symbol = ::dlsym(library, "ncclGetVersion");
      ::dlclose(library);
    }
  }
  if (symbol == nullptr) symbol = ::dlsym(RTLD_DEFAULT, "ncclGetVersion");
  int version = 0;
  if (symbol == nullptr || reinterpret_cast<GetVersion>(symbol)(&version) != abi::kSuccess)
    return 0;
  return version;
}

std::uint64_t shared_memory_bytes() {
  struct statvfs found{};
  if (::statvfs("/dev/shm", &found) != 0) return 0;
  return std::uint64_t{found.f_blocks} * found.f_frsize;
}

}  // namespace paceline::nccl
