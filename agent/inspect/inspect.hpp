// SPDX-License-Identifier: Apache-2.0
// What the command line shows of a machine: `paceline fabric` calls inspect_fabric and
// save_recording, `paceline doctor` calls diagnose. The CLI includes this header and no other of
// the agent's probe.
//
// Plain functions; each blocks while it reads files, and diagnose with `live` also while
// paceline-probe runs. Failure is an Error that names the option, its value and what to change.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "agent/checks/check.hpp"
#include "common/base/error.hpp"

namespace paceline::agent {

/// Which machine to look at: this one, a recording of another (`--root DIR`, `--nvml FILE`), or one
/// that a topology file of NCCL describes (`--nccl-topo FILE`). Such a file with a root (`/` is
/// this machine) replaces the places of the machine's devices, as NCCL_TOPO_FILE does. A recording
/// without an nvml.json has no GPU library: the library of this machine is never asked about
/// another machine.
struct MachineOptions {
  std::string root;       // empty: this machine
  std::string nvml;       // a recorded answer; empty: this machine's library, or ROOT/nvml.json
  std::string nccl_topo;  // a topology file
};

/// The fabric of a machine in every form that `paceline fabric` prints. Each text ends with a
/// newline.
struct FabricView {
  std::string table;    // the distance matrix for people, with its legend
  std::string json;     // what `--json` prints and the agent serves as /v1/fabric
  std::string nccl;     // a topology file for NCCL
  std::string warning;  // what a person must fix, without a newline; empty: nothing
};

Result<FabricView> inspect_fabric(const MachineOptions& machine);

/// Records the machine below a new folder, without serial numbers, addresses and UUIDs. Returns the
/// number of files. kAlreadyExists if the folder is not empty.
Result<std::size_t> save_recording(const MachineOptions& machine, const std::string& folder);

/// What `paceline doctor` looks at.
struct DiagnosisOptions {
  MachineOptions machine;
  bool live = false;          // run paceline-probe, which uses the devices
  std::string probe;          // that program; empty: the one beside this program
  std::string registrations;  // or the report of an earlier run, perhaps on another machine
  std::string pci_config;     // what `paceline-probe --pci-config` recorded as root
  std::vector<std::string> probe_arguments;  // for tests: other libraries
};

struct Diagnosis {
  std::vector<Finding> findings;      // at least one of every check
  std::string ages;                   // how old the recorded inputs are; empty: there are none
  std::vector<std::string> warnings;  // what a person must fix before some checks can run
};

Result<Diagnosis> diagnose(const DiagnosisOptions& options);

/// What `paceline doctor --json` prints and the agent serves as /v1/checks; ends with a newline.
std::string findings_json(const std::vector<Finding>& findings);

}  // namespace paceline::agent
