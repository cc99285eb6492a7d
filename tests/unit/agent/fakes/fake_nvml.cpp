// SPDX-License-Identifier: Apache-2.0
// A library with NVML's symbols, which tests load by the real dlopen path. Its settings:
//
//   FAKE_NVML_GPUS    number of GPUs of the DGX-like fixture
//   FAKE_NVML_FAIL    a call that fails
//   FAKE_NVML_BUSY    address of a busy GPU
//   FAKE_NVML_ERRORS  errors of each kind on an NVLink; unset: no NVLinks
//   FAKE_NVML_RECOVERY  the GPUs tell ECC errors, replaced rows, and this recovery action
//   FAKE_NVML_FIELDS  the links are of NVLink 5, whose errors are fields
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {
constexpr const char* kBusIds[] = {"00000000:1B:00.0", "00000000:43:00.0", "00000000:52:00.0",
                                   "00000000:61:00.0", "00000000:9D:00.0", "00000000:C3:00.0",
                                   "00000000:D1:00.0", "00000000:DF:00.0"};
int initialised = 0;

bool fails(const char* call) {
  const char* chosen = std::getenv("FAKE_NVML_FAIL");
  return chosen != nullptr && std::strcmp(chosen, call) == 0;
}
struct Memory {
  unsigned long long total, free, used;
};
struct Pci {
  char legacy[16];
  unsigned int domain, bus, device, id, subsystem;
  char bus_id[32];
};
struct Field {
  unsigned int id, link;
  long long timestamp, latency;
  int type, result;
  unsigned long long number;
};
}  // namespace

extern "C" {
int nvmlInit_v2() {
  if (fails("init")) return 9;
  ++initialised;
  return 0;
}
int nvmlShutdown() {
  --initialised;
  return 0;
}
const char* nvmlErrorString(int code) {
  return code == 9    ? "Driver Not Loaded"
         : code == 15 ? "GPU is lost"
         : code == 4  ? "Insufficient Permissions"
                      : "Uninitialized";
}
int nvmlDeviceGetCount_v2(unsigned int* count) {
  if (initialised == 0) return 1;
  if (fails("count")) return 15;
  const char* gpus = std::getenv("FAKE_NVML_GPUS");
  *count = gpus == nullptr ? 8 : static_cast<unsigned int>(std::atoi(gpus));
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void** device) {
  if (fails("gpu3") && index == 3) return 15;
  if (fails("index")) return 4;
  *device = reinterpret_cast<void*>(static_cast<std::uintptr_t>(index + 1));
  return 0;
}
int nvmlDeviceGetName(void*, char* name, unsigned int length) {
  std::snprintf(name, length, "NVIDIA H100 80GB HBM3");
  return 0;
}
int nvmlDeviceGetMemoryInfo(void*, Memory* memory) {
  memory->total = 81559ULL << 20U;
  return 0;
}
int nvmlDeviceGetPciInfo_v3(void* device, Pci* pci) {
  std::snprintf(pci->bus_id, sizeof pci->bus_id, "%s",
                kBusIds[reinterpret_cast<std::uintptr_t>(device) - 1]);
  return 0;
}
int nvmlDeviceGetUUID(void* device, char* uuid, unsigned int length) {
  std::snprintf(uuid, length, "GPU-%d",
                static_cast<int>(reinterpret_cast<std::uintptr_t>(device) - 1));
  return 0;
}
int nvmlDeviceGetNvLinkState(void*, unsigned int link, int* active) {
  *active = 1;
  return std::getenv("FAKE_NVML_ERRORS") != nullptr && link < 2 ? 0 : 2;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void*, unsigned int, Pci*) { return 3; }
int nvmlDeviceGetNvLinkErrorCounter(void*, unsigned int, int kind, unsigned long long* errors) {
  // not every board counts every kind
  if (kind == 3 || std::getenv("FAKE_NVML_FIELDS") != nullptr) return 3;
  *errors = static_cast<unsigned long long>(std::atoi(std::getenv("FAKE_NVML_ERRORS")));
  return 0;
}
int nvmlDeviceGetTotalEccErrors(void*, int type, int counter, unsigned long long* errors) {
  if (std::getenv("FAKE_NVML_RECOVERY") == nullptr || type != 1 || counter != 0) return 3;
  *errors = 5;
  return 0;
}
int nvmlDeviceGetRemappedRows(void*, unsigned int* corrected, unsigned int* uncorrected,
                              unsigned int* pending, unsigned int* failed) {
  if (std::getenv("FAKE_NVML_RECOVERY") == nullptr) return 3;
  *corrected = 1;
  *uncorrected = 2;
  *pending = 1;
  *failed = 0;
  return 0;
}
int nvmlDeviceGetFieldValues(void*, int count, Field* fields) {
  for (Field* field = fields; field < fields + count; ++field) {
    if (field->id == 230) {  // the recovery action
      const char* action = std::getenv("FAKE_NVML_RECOVERY");
      field->result = action == nullptr ? 3 : 0;
      field->type = 1;
      field->number = action == nullptr ? 0 : static_cast<unsigned long long>(std::atoi(action));
      continue;
    }
    // One process has an unknown type, one has no value, the rest have three types.
    field->type = field->id == 206 ? 99 : field->id == 208 ? 1 : field->id == 209 ? 2 : 3;
    field->result = field->id == 207 || field->link > 1 ? 3 : 0;
    field->number = static_cast<unsigned long long>(std::atoi(std::getenv("FAKE_NVML_ERRORS")));
    // The bytes after a shorter number are undefined.
    if (field->type == 1) field->number |= 0xdeadULL << 32U;
  }
  return 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* address, void** device) {
  const char* busy = std::getenv("FAKE_NVML_BUSY");
  static int idle_gpu = 0;
  static int busy_gpu = 1;
  *device = busy != nullptr && std::strcmp(busy, address) == 0 ? &busy_gpu : &idle_gpu;
  return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned int* count, void*) {
  if (*static_cast<int*>(device) == 0) return 0;
  *count = 1;
  return 7;
}
}
