// SPDX-License-Identifier: Apache-2.0
// The GPUs that their vendor's library shows, behind an interface, so that the agent and the tests
// run on machines without it. NVML is the implementation; `paceline fabric --nvml` replays a
// recorded answer.
//
// One thread owns an implementation. Failure is an Error whose message says what helps; `kNotFound`
// means that there is no library.
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

  /// Every GPU with all fields that the library knows. The NUMA node and the resource name come
  /// from elsewhere.
  virtual Result<std::vector<Gpu>> devices() = 0;

  /// PCI addresses of the GPUs that answer. A cheap call, made every few seconds.
  virtual Result<std::vector<std::string>> present() {
    const auto all = devices();
    if (!all) return std::unexpected(all.error());
    std::vector<std::string> addresses;
    for (const auto& gpu : *all) addresses.push_back(gpu.pci_address);
    return addresses;
  }
};

/// NVML, opened at run time. Each call tries to open it until it is there, because a driver may be
/// installed after the agent has started. It stays initialised between calls: without persistence
/// mode, initialising takes seconds.
std::unique_ptr<GpuLibrary> open_nvml(std::string file = "libnvidia-ml.so.1");

/// Returns these recorded GPUs, or the error `problem` if it is not empty.
std::unique_ptr<GpuLibrary> replay_gpus(std::vector<Gpu> gpus, std::string problem = {});

/// Key of an NVLink domain; empty for a cluster UUID of zeros, which means no domain.
std::string nvlink_domain_key(const unsigned char (&cluster_uuid)[16], unsigned int clique);

}  // namespace paceline::agent
