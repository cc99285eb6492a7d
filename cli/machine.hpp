// SPDX-License-Identifier: Apache-2.0
// Which machine a command looks at: this one, a recording of another (`--root DIR`, `--nvml FILE`),
// or one that a topology file of NCCL describes
// (`--nccl-topo FILE`). A recording never mixes with this machine: without its own nvml.json it has
// no library.
//
// Plain functions. Failure names the option, its value and the remedy.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "agent/probe/gpu/gpu_library.hpp"
#include "agent/probe/hardware/hardware.hpp"
#include "agent/probe/sysfs/root.hpp"
#include "common/base/error.hpp"

namespace paceline::cli {

struct MachineOptions {
  std::string root;  // empty: this machine
  // a recorded answer; empty: the library of this machine, or ROOT/nvml.json
  std::string nvml;
  std::string nccl_topo;  // a topology file instead of both
};

Result<agent::Root> open_root(const MachineOptions& options);
Result<std::unique_ptr<agent::GpuLibrary>> open_gpus(const MachineOptions& options);

struct Machine {
  agent::Hardware hardware;
  std::optional<agent::Root> root;  // absent: a topology file tells nothing else
};

Result<Machine> look_at(const MachineOptions& options);

/// The file's text, at most 16 MiB; `option` is what messages call it.
Result<std::string> read_input(const std::string& option, const std::string& file);

}  // namespace paceline::cli
