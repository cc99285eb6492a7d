// SPDX-License-Identifier: Apache-2.0
// Reads what hardware a node has. The agent's loop calls probe_hardware at every probe interval;
// `paceline fabric` and `paceline doctor` call it once. Its rooms:
//
//   hardware/  the values that a probe returns, and what can be told from them alone.
//   sysfs/     CPUs, NICs, RDMA devices, PCI functions and counters from the kernel's files.
//   gpu/       GPUs from NVML, or from a recorded answer.
//   pci/       PCI configuration space, live or from an earlier snapshot.
//   fabric/    distances between the devices, derived from Hardware.
//   record/    `paceline fabric --record`: the files of a machine without what identifies it.
//   formats/   NCCL's topology files and recorded NVML answers.
//
// In this folder: settings.hpp, how the node is set up, and fingerprint.hpp, a cheap test for
// changes between two probes.
//
// Thread-safe for different Root values. A device that cannot be read is left out; what a person
// must fix (a GPU without its library) is in GpuReport::problem.
#pragma once

#include "agent/probe/gpu/gpu_library.hpp"
#include "agent/probe/hardware/hardware.hpp"
#include "agent/probe/sysfs/root.hpp"

namespace paceline::agent {

Hardware probe_hardware(const Root& root, GpuLibrary& library);

}  // namespace paceline::agent
