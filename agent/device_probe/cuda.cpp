// SPDX-License-Identifier: Apache-2.0
#include "agent/device_probe/cuda.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "agent/probe/gpu/gpu_library.hpp"
#include "agent/probe/hardware/accelerator.hpp"

namespace paceline::agent {
namespace {

constexpr int kMostGpus = 64;
constexpr int kDmaBufSupported = 124;  // CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED
constexpr int kNoDevice = 100;         // CUDA_ERROR_NO_DEVICE
constexpr int kDmaBufHandle = 1;       // CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD
constexpr int kFabricSupported = 128;  // CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED
constexpr int kFabricHandle = 8;       // CU_MEM_HANDLE_TYPE_FABRIC
constexpr int kLeast = 0;              // CU_MEM_ALLOC_GRANULARITY_MINIMUM

/// CUmemAllocationProp, as the driver's ABI has it on 64-bit Linux.
struct AllocationProperties {
  int type = 1;  // CU_MEM_ALLOCATION_TYPE_PINNED
  int handle_types = kFabricHandle;
  int location_type = 1;  // CU_MEM_LOCATION_TYPE_DEVICE
  int device = 0;
  void* windows = nullptr;
  std::array<std::uint8_t, 8> flags{};
};
static_assert(sizeof(AllocationProperties) == 32);

/// CUmemFabricHandle.
using ShareableHandle = std::array<std::uint8_t, 64>;

}  // namespace

Cuda::Cuda(const std::string& file) : library_(file) {
  library_.find("cuInit", call_.init);
  library_.find("cuDeviceGetCount", call_.count);
  library_.find("cuDeviceGet", call_.get);
  library_.find("cuDeviceGetPCIBusId", call_.bus_id);
  library_.find("cuDeviceGetAttribute", call_.attribute);
  library_.find("cuDevicePrimaryCtxRetain", call_.retain);
  library_.find("cuDevicePrimaryCtxRelease_v2", call_.release);
  library_.find("cuCtxSetCurrent", call_.set_current);
  library_.find("cuMemAlloc_v2", call_.allocate);
  library_.find("cuMemFree_v2", call_.free);
  library_.find("cuMemcpyHtoD_v2", call_.to_device);
  library_.find("cuGetErrorName", call_.error_name, true);
  library_.find("cuMemGetHandleForAddressRange", call_.handle, true);
  library_.find("cuMemGetAllocationGranularity", call_.granularity, true);
  library_.find("cuMemCreate", call_.create, true);
  library_.find("cuMemExportToShareableHandle", call_.share, true);
  library_.find("cuMemImportFromShareableHandle", call_.import, true);
  library_.find("cuMemRelease", call_.let_go, true);
}

Refusal Cuda::refused(const char* call, Code code) const {
  const char* name = nullptr;
  if (call_.error_name == nullptr || call_.error_name(code, &name) != 0) name = nullptr;
  return {0, std::string(call) + ": " +
                 (name == nullptr ? "error " + std::to_string(code) : std::string(name))};
}

Refusal Cuda::list(std::vector<std::string>& addresses) {
  if (!library_.problem().empty()) return {call_.init == nullptr ? kNoGpus : 0, library_.problem()};
  if (const Code code = call_.init(0); code != 0) {
    auto refusal = refused("cuInit", code);
    if (code == kNoDevice) refusal.error = kNoGpus;
    return refusal;
  }
  int count = 0;
  if (const Code code = call_.count(&count); code != 0) return refused("cuDeviceGetCount", code);
  for (int ordinal = 0; ordinal < std::min(count, kMostGpus); ++ordinal) {
    int device = 0;
    std::array<char, 32> text{};
    if (call_.get(&device, ordinal) != 0 || call_.bus_id(text.data(), text.size() - 1, device) != 0)
      continue;
    devices_.push_back(device);
    addresses.push_back(sysfs_address(text.data()));
  }
  return {};
}

std::unique_ptr<Cuda::Memory> Cuda::memory(std::size_t index) const {
  return std::make_unique<Memory>(*this, devices_.at(index));
}

Refusal Cuda::Memory::allocate() {
  const Calls& call = cuda_.call_;
  void* context = nullptr;
  if (const Code code = call.retain(&context, device_); code != 0)
    return cuda_.refused("cuDevicePrimaryCtxRetain", code);
  has_context_ = true;
  if (const Code code = call.set_current(context); code != 0)
    return cuda_.refused("cuCtxSetCurrent", code);
  if (const Code code = call.allocate(&address_, kSize); code != 0) {
    address_ = 0;
    return cuda_.refused("cuMemAlloc", code);
  }
  return {};
}

Refusal Cuda::Memory::fill_for(std::chrono::milliseconds time) {
  const std::vector<char> host(kSize);
  const auto until = std::chrono::steady_clock::now() + time;
  do {
    if (const Code code = cuda_.call_.to_device(address_, host.data(), host.size()); code != 0)
      return cuda_.refused("cuMemcpyHtoD", code);
  } while (std::chrono::steady_clock::now() < until);
  return {};
}

Refusal Cuda::Memory::share_with_domain() {
  const Calls& call = cuda_.call_;
  const std::array needed{call.granularity != nullptr, call.create != nullptr,
                          call.share != nullptr, call.import != nullptr, call.let_go != nullptr};
  int supported = 0;
  if (std::ranges::count(needed, false) > 0 ||
      call.attribute(&supported, kFabricSupported, device_) != 0)
    return {kNoDomain, "this CUDA driver is older than 12.4, which knows NVLink domains"};
  if (supported == 0) return {kNoDomain, "this GPU is in no NVLink domain"};
  AllocationProperties properties;
  properties.device = device_;
  std::size_t size = 0;
  if (const Code code = call.granularity(&size, &properties, kLeast); code != 0)
    return cuda_.refused("cuMemGetAllocationGranularity", code);
  std::uint64_t own = 0;
  if (const Code code = call.create(&own, size, &properties, 0); code != 0)
    return cuda_.refused("cuMemCreate", code);
  ShareableHandle shareable{};
  std::uint64_t imported = 0;
  Refusal refusal;
  if (const Code shared = call.share(&shareable, own, kFabricHandle, 0); shared != 0) {
    refusal = cuda_.refused("cuMemExportToShareableHandle", shared);
  } else if (const Code code = call.import(&imported, &shareable, kFabricHandle); code != 0) {
    refusal = cuda_.refused("cuMemImportFromShareableHandle", code);
  } else {
    call.let_go(imported);
  }
  call.let_go(own);
  return refusal;
}

Refusal Cuda::Memory::export_dmabuf(int& descriptor) {
  const Calls& call = cuda_.call_;
  if (descriptor_ < 0) {
    int supported = 0;
    if (call.handle == nullptr || call.attribute(&supported, kDmaBufSupported, device_) != 0)
      return {0, "this CUDA driver is older than 11.7, which knows dma-buf"};
    if (supported == 0)
      return {0, "CUDA says that this GPU and its kernel module cannot do dma-buf"};
    if (const Code code = call.handle(&descriptor_, address_, kSize, kDmaBufHandle, 0); code != 0) {
      descriptor_ = -1;
      return cuda_.refused("cuMemGetHandleForAddressRange", code);
    }
  }
  descriptor = descriptor_;
  return {};
}

Cuda::Memory::~Memory() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (address_ != 0) cuda_.call_.free(address_);
  if (has_context_) cuda_.call_.release(device_);
}

}  // namespace paceline::agent
