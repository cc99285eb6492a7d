// SPDX-License-Identifier: Apache-2.0
// GPUs as their vendor's library shows them, behind an interface: the agent starts, and tests run,
// on machines without it.
//
// An implementation is owned by one thread. Failure is an Error whose message says what helps;
// `kNotFound` means that there is no library.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "agent/probe/hardware/hardware.hpp"
#include "common/base/error.hpp"

namespace paceline::agent {

class GpuLibrary {
 public:
  virtual ~GpuLibrary() = default;

  /// Every GPU with all that the library knows: no NUMA node and no resource name, which come from
  /// elsewhere.
  virtual Result<std::vector<Gpu>> devices() = 0;

  /// PCI addresses of the GPUs that answer: the cheap question, asked every few seconds.
  virtual Result<std::vector<std::string>> present() {
    const auto all = devices();
    if (!all) return std::unexpected(all.error());
    std::vector<std::string> addresses;
    for (const auto& gpu : *all) addresses.push_back(gpu.pci_address);
    return addresses;
  }
};

/// NVML by dlopen, tried again at each call until it is there (a driver may be installed after the
/// agent). It stays initialised between calls: starting it costs seconds on GPUs without
/// persistence mode.
std::unique_ptr<GpuLibrary> open_nvml(std::string file = "libnvidia-ml.so.1");

/// Answers what was recorded: these GPUs, or, where `problem` says why, that there is no library.
std::unique_ptr<GpuLibrary> replay_gpus(std::vector<Gpu> gpus, std::string problem = {});

/// Key of an NVLink domain; empty for a cluster UUID of zeros, which means none.
std::string nvlink_domain_key(const unsigned char (&cluster_uuid)[16], unsigned int clique);

}  // namespace paceline::agent
