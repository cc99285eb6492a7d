// SPDX-License-Identifier: Apache-2.0
// Which events the plugin asks a release of NCCL for. Some releases crash or are slow with a
// profiler; docs/designs/nccl-profiler.md has the reports.
//
// Stateless. choose() is pure. nccl_version() asks the loader, and nothing here fails: what cannot
// be known makes the choice more careful.
#pragma once

#include <cstdint>
#include <string>

namespace paceline::nccl {

struct Choice {
  int mask = 0;        // events of NCCL's interface; 0: none
  std::string reason;  // one line where less than everything is asked; empty otherwise
};

struct Machine {
  int nccl_version = 0;  // as ncclGetVersion gives it, 22809 for 2.28.9; 0: unknown
  std::uint64_t shared_memory_bytes = 0;  // size of /dev/shm
};

/// `interface`: version of the symbol that NCCL took, 3 to 7.
Choice choose(int interface, const Machine& machine);

/// The version of the NCCL that holds the code at `caller`, or 0.
int nccl_version(const void* caller);

std::uint64_t shared_memory_bytes();

}  // namespace paceline::nccl
