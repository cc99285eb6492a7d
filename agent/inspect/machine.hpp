// SPDX-License-Identifier: Apache-2.0
// Opens the machine that MachineOptions name; for the sources of this folder.
//
// Plain functions. Failure is an Error that names the option, its value and what to change.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "agent/inspect/inspect.hpp"
#include "agent/probe/gpu/gpu_library.hpp"
#include "agent/probe/hardware/hardware.hpp"
#include "agent/probe/sysfs/root.hpp"

namespace paceline::agent {

Result<Root> open_root(const MachineOptions& options);
Result<std::unique_ptr<GpuLibrary>> open_gpus(const MachineOptions& options);

struct Machine {
  Hardware hardware;
  std::optional<Root> root;  // nullopt for a topology file, which has no other settings
};

Result<Machine> probe_machine(const MachineOptions& options);

/// The file's text, at most 16 MiB. Error messages call the file by `option`.
Result<std::string> read_input(const std::string& option, const std::string& file);

}  // namespace paceline::agent
