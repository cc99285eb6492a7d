// SPDX-License-Identifier: Apache-2.0
// Tries all registrations in this process and reports progress as JSON lines: {"begin": attempt}
// before each step, {"end": attempt} after it, and at last {"finished": report without attempts}.
// It may hang or crash in a driver, so it runs in the child of paceline-probe; run_probe_process
// (probe_process.hpp) reads its lines.
//
// Changes nothing: every registration is undone at once. One thread. Failures are told in the
// lines.
#pragma once

#include <functional>
#include <string>

namespace paceline::agent {

struct DeviceProbeOptions {
  std::string verbs = "libibverbs.so.1";
  std::string cuda = "libcuda.so.1";
  std::string nvml = "libnvidia-ml.so.1";
  // its version is read in a job's pod, if a setting depends on it
  std::string nccl = "libnccl.so.2";
  std::string sys = "/sys";  // where the PCIe links of GPUs are read
  bool even_busy = false;
};

/// Calls `tell` for each line, without newline. In a job's pod no link is put under load: links
/// belong to the node and are checked there.
void probe_devices(const DeviceProbeOptions& options,
                   const std::function<void(const std::string&)>& tell);

}  // namespace paceline::agent
