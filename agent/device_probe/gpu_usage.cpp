// SPDX-License-Identifier: Apache-2.0
#include "agent/device_probe/gpu_usage.hpp"

namespace paceline::agent {
namespace {

constexpr int kNvmlSuccess = 0;
// NVML_ERROR_INSUFFICIENT_SIZE: there are more processes than there is room for
constexpr int kNvmlTooSmall = 7;

}  // namespace

GpuUsage::GpuUsage(const std::string& nvml_file) : library_(nvml_file) {
  library_.find("nvmlInit_v2", init_);
  library_.find("nvmlShutdown", shutdown_);
  library_.find("nvmlDeviceGetHandleByPciBusId_v2", by_bus_id_);
  // All versions of this call are alike if only the number is requested.
  for (const char* name :
       {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2",
        "nvmlDeviceGetComputeRunningProcesses"}) {
    if (processes_ == nullptr) library_.find(name, processes_, true);
  }
  ready_ = library_.problem().empty() && processes_ != nullptr && init_() == kNvmlSuccess;
}

GpuUsage::~GpuUsage() {
  if (ready_) shutdown_();
}

std::string GpuUsage::why_busy(const std::string& pci_address) const {
  const std::string remedy = "; with --even-busy it is tried all the same";
  if (!ready_) return "whether it is idle is not known, since NVML does not answer" + remedy;
  void* device = nullptr;
  unsigned int count = 0;
  if (by_bus_id_(pci_address.c_str(), &device) != kNvmlSuccess)
    return "NVML does not know this GPU" + remedy;
  const int code = processes_(device, &count, nullptr);
  if (code == kNvmlTooSmall || (code == kNvmlSuccess && count > 0))
    return "processes use it" + remedy;
  if (code != kNvmlSuccess)
    return "NVML does not show its processes (error " + std::to_string(code) + ")" + remedy;
  return {};
}

}  // namespace paceline::agent
