// SPDX-License-Identifier: Apache-2.0
// Tries all registrations in this process and tells each step before and after it, a JSON line
// each: {"begin": attempt}, {"end": attempt}, at last
// {"finished": report without attempts}. May hang or crash in a driver: run_probe_process
// (child.hpp) is the other side.
//
// Changes nothing: what is registered is taken back at once. One thread. Failure is told in the
// lines.
#pragma once

#include <functional>
#include <string>

namespace paceline::agent {

struct DeviceProbeOptions {
  std::string verbs = "libibverbs.so.1";
  std::string cuda = "libcuda.so.1";
  std::string nvml = "libnvidia-ml.so.1";
  std::string nccl = "libnccl.so.2";  // in a job's pod, asked for its version where that decides
  std::string sys = "/sys";           // where the GPUs' links are read
  bool even_busy = false;
};

/// `tell` gets lines without their end. In a job's pod no link is put under load: it is the node's,
/// and looked at there.
void probe_devices(const DeviceProbeOptions& options,
                   const std::function<void(const std::string&)>& tell);

}  // namespace paceline::agent
