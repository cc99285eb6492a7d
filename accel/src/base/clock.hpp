// SPDX-License-Identifier: Apache-2.0
// CLOCK_MONOTONIC, the clock of step records. No system call on x86-64 and arm64: the kernel maps
// it.
#pragma once

#include <time.h>

#include <cstdint>

namespace paceline::base {

inline std::uint64_t monotonic_ns() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(time.tv_nsec);
}

}  // namespace paceline::base
