// SPDX-License-Identifier: Apache-2.0
// GPUs as their vendor's library shows them, behind an interface: the agent starts, and tests run, on machines without it.
//
// An implementation is owned by one thread. Failure is an Error whose message says what helps; `kNotFound` means that there is no library.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/error.hpp"

namespace paceline::agent {

struct GpuDevice {
  int index = 0;
  std::string model;
  std::uint64_t memory_mib = 0;
  std::string pci_address;  // as sysfs writes it: "0000:3b:00.0"
};

class GpuLibrary {
 public:
  virtual ~GpuLibrary() = default;
  virtual Result<std::vector<GpuDevice>> devices() = 0;
};

/// NVML by dlopen, tried again at each call until it is there (a driver may be installed after the agent). It stays initialised between
/// calls: starting it costs seconds on GPUs without persistence mode.
std::unique_ptr<GpuLibrary> open_nvml(std::string file = "libnvidia-ml.so.1");

/// NVML's "00000000:3B:00.0" as sysfs writes it, "0000:3b:00.0".
std::string sysfs_address(std::string_view nvml_bus_id);

}  // namespace paceline::agent
