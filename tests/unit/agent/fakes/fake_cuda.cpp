// SPDX-License-Identifier: Apache-2.0
// A library with the CUDA driver's symbols, for the child of paceline-probe. FAKE_GPUS lists the
// bus addresses of its GPUs. Its calls for FAKE_RULES are init, retain, allocate, copy, supported
// (1: no dma-buf), export, domain (1: in none), share, import.
#include <fcntl.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "tests/unit/agent/fakes/fake_rules.hpp"

namespace {

std::vector<std::string> gpus;
int current = -1;

}  // namespace

extern "C" {
int cuInit(unsigned int) {
  const char* names = std::getenv("FAKE_GPUS");
  std::istringstream words(names == nullptr ? "0000:1B:00.0 0000:43:00.0" : names);
  for (std::string name; words >> name;) gpus.push_back(name);
  return paceline::agent::fake::rule("init", "cuda");
}
int cuDeviceGetCount(int* count) {
  *count = static_cast<int>(gpus.size());
  return 0;
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal + 10;
  return 0;
}
int cuDeviceGetPCIBusId(char* text, int size, int device) {
  std::snprintf(text, static_cast<std::size_t>(size), "%s",
                gpus.at(static_cast<std::size_t>(device - 10)).c_str());
  return 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  if (attribute != 124 && attribute != 128) return 1;
  *value = paceline::agent::fake::rule(attribute == 124 ? "supported" : "domain",
                                       gpus.at(static_cast<std::size_t>(device - 10))) == 0
               ? 1
               : 0;
  return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = &gpus.at(static_cast<std::size_t>(device - 10));
  return paceline::agent::fake::rule("retain", gpus.at(static_cast<std::size_t>(device - 10)));
}
int cuDevicePrimaryCtxRelease_v2(int) { return 0; }
int cuCtxSetCurrent(void* context) {
  current = static_cast<int>(static_cast<std::string*>(context) - gpus.data());
  return 0;
}
int cuMemAlloc_v2(std::uint64_t* address, std::size_t) {
  *address = (std::uint64_t{3} << 44U) + (static_cast<std::uint64_t>(current) << 32U);
  return paceline::agent::fake::rule("allocate", gpus.at(static_cast<std::size_t>(current)));
}
int cuMemcpyHtoD_v2(std::uint64_t, const void*, std::size_t) {
  return paceline::agent::fake::rule("copy", gpus.at(static_cast<std::size_t>(current)));
}
int cuMemFree_v2(std::uint64_t) { return 0; }
int cuMemGetHandleForAddressRange(void* handle, std::uint64_t, std::size_t, int kind,
                                  unsigned long long) {
  if (kind != 1) return 1;
  *static_cast<int*>(handle) = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  return paceline::agent::fake::rule("export", gpus.at(static_cast<std::size_t>(current)));
}
int cuMemGetAllocationGranularity(std::size_t* bytes, const void* properties, int) {
  // Type, handle types, kind of location and device must ask for a fabric handle of pinned memory
  // of one of these GPUs.
  const auto* words = static_cast<const int*>(properties);
  if (words[0] != 1 || words[1] != 8 || words[2] != 1 || words[3] != current + 10) return 1;
  *bytes = std::size_t{2} << 20U;
  return 0;
}
int cuMemCreate(std::uint64_t* handle, std::size_t size, const void*, unsigned long long) {
  if (size != std::size_t{2} << 20U) return 1;
  *handle = 77;
  return 0;
}
int cuMemExportToShareableHandle(void* shareable, std::uint64_t handle, int kind,
                                 unsigned long long) {
  if (handle != 77 || kind != 8) return 1;
  static_cast<unsigned char*>(shareable)[63] = 42;
  return paceline::agent::fake::rule("share", gpus.at(static_cast<std::size_t>(current)));
}
int cuMemImportFromShareableHandle(std::uint64_t* handle, void* shareable, int kind) {
  if (static_cast<unsigned char*>(shareable)[63] != 42 || kind != 8) return 1;
  *handle = 78;
  return paceline::agent::fake::rule("import", gpus.at(static_cast<std::size_t>(current)));
}
int cuMemRelease(std::uint64_t handle) { return handle == 77 || handle == 78 ? 0 : 1; }
int cuGetErrorName(int code, const char** text) {
  *text = code == 800   ? "CUDA_ERROR_NOT_PERMITTED"
          : code == 801 ? "CUDA_ERROR_NOT_SUPPORTED"
          : code == 100 ? "CUDA_ERROR_NO_DEVICE"
                        : "CUDA_ERROR_UNKNOWN";
  return 0;
}
int ncclGetVersion(int* version) {
  const char* number = std::getenv("FAKE_NCCL");
  *version = number == nullptr ? 0 : std::atoi(number);
  return 0;
}
}
