// SPDX-License-Identifier: Apache-2.0
// Whether processes use a GPU, by NVML opened at run time. paceline-probe leaves a busy GPU alone,
// because a context on it would take memory and time from its users. Belongs to one thread. A GPU
// whose state is unknown counts as busy.
#pragma once

#include <string>

#include "agent/device_probe/shared_library.hpp"

namespace paceline::agent {

class GpuUsage {
 public:
  explicit GpuUsage(const std::string& nvml_file);
  GpuUsage(const GpuUsage&) = delete;
  GpuUsage& operator=(const GpuUsage&) = delete;
  ~GpuUsage();

  /// Empty for an idle GPU, else the reason why it is left alone.
  std::string why_busy(const std::string& pci_address) const;

 private:
  SharedLibrary library_;
  int (*init_)() = nullptr;
  int (*shutdown_)() = nullptr;
  int (*by_bus_id_)(const char* bus_id, void** device) = nullptr;
  int (*processes_)(void* device, unsigned int* count, void* infos) = nullptr;
  bool ready_ = false;
};

}  // namespace paceline::agent
