// SPDX-License-Identifier: Apache-2.0
// The NVML declarations that are used, as its ABI has them. The agent builds without NVIDIA's
// toolkit, so the vendor's header is not included. The first group of functions is in every driver
// since 450. A function of the second group may be missing; then its answers are unknown.
#pragma once

#include <dlfcn.h>

#include <type_traits>

namespace paceline::agent::nvml {

using Return = int;
using Device = void*;
constexpr Return kSuccess = 0;
constexpr Return kNoPermission = 4;  // NVML_ERROR_NO_PERMISSION

struct Memory {
  unsigned long long total, free, used;
};

struct PciInfo {
  char bus_id_legacy[16];
  unsigned int domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
static_assert(sizeof(PciInfo) == 68);

/// nvmlGpuFabricInfo_v2_t
struct FabricInfo {
  unsigned int version = sizeof(FabricInfo) | (2U << 24U);
  unsigned char cluster_uuid[16] = {};
  Return status = 0;
  unsigned int clique = 0;
  unsigned char state = 0;  // 3: completed
  unsigned int health_mask = 0;
};
static_assert(sizeof(FabricInfo) == 36);

/// nvmlFieldValue_t
struct FieldValue {
  unsigned int field = 0;
  unsigned int scope = 0;  // of an NVLink's field: which link
  long long timestamp = 0;
  long long latency = 0;
  int type = 0;
  Return result = 0;
  union {
    double real;
    unsigned int word;
    unsigned long long number = 0;
  } value;
};
static_assert(sizeof(FieldValue) == 40);
constexpr int kUnsignedInt = 1;       // NVML_VALUE_TYPE_UNSIGNED_INT
constexpr int kUnsignedLong = 2;      // NVML_VALUE_TYPE_UNSIGNED_LONG
constexpr int kUnsignedLongLong = 3;  // NVML_VALUE_TYPE_UNSIGNED_LONG_LONG

constexpr int kMaxLinks = 36;
constexpr unsigned int kP2pSupported = 0;  // NVML_NVLINK_CAP_P2P_SUPPORTED
// NVML_NVLINK_ERROR_DL_REPLAY, _RECOVERY, _CRC_FLIT, _CRC_DATA
constexpr int kLinkErrorKinds = 4;
/// NVML_FI_DEV_NVLINK_COUNT_*: of NVLink 5, which has no counters of the kinds above.
/// MALFORMED_PACKET, BUFFER_OVERRUN, RCV, RCV_REMOTE, RCV_GENERAL, LOCAL_LINK_INTEGRITY,
/// LINK_RECOVERY_FAILED. Not what forward error correction mends: that is not zero on a healthy
/// link.
constexpr unsigned int kLinkErrorFields[] = {206, 207, 208, 209, 210, 211, 214};
constexpr unsigned int kRecoveryAction = 230;  // NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
constexpr int kUncorrected = 1;                // NVML_MEMORY_ERROR_TYPE_UNCORRECTED
constexpr int kVolatile = 0;                   // NVML_VOLATILE_ECC: since the driver was loaded
constexpr int kRemoteGpu = 0;
constexpr int kRemoteSwitch = 2;
constexpr unsigned char kFabricCompleted = 3;

struct Functions {
  Return (*init)() = nullptr;
  Return (*shutdown)() = nullptr;
  Return (*count)(unsigned int*) = nullptr;
  Return (*by_index)(unsigned int, Device*) = nullptr;
  Return (*name)(Device, char*, unsigned int) = nullptr;
  Return (*memory)(Device, Memory*) = nullptr;
  Return (*pci)(Device, PciInfo*) = nullptr;
  const char* (*error)(Return) = nullptr;

  Return (*capability)(Device, int*, int*) = nullptr;
  Return (*bar1)(Device, Memory*) = nullptr;
  Return (*link_state)(Device, unsigned int, int*) = nullptr;
  Return (*link_can)(Device, unsigned int, unsigned int, unsigned int*) = nullptr;
  Return (*link_remote)(Device, unsigned int, PciInfo*) = nullptr;
  Return (*link_remote_type)(Device, unsigned int, int*) = nullptr;
  Return (*link_errors)(Device, unsigned int, int, unsigned long long*) = nullptr;
  Return (*fields)(Device, int, FieldValue*) = nullptr;
  Return (*fabric)(Device, FabricInfo*) = nullptr;
  Return (*c2c)(Device, unsigned int*) = nullptr;
  Return (*mig_mode)(Device, unsigned int*, unsigned int*) = nullptr;
  Return (*mig_count)(Device, unsigned int*) = nullptr;
  Return (*mig_device)(Device, unsigned int, Device*) = nullptr;
  Return (*uuid)(Device, char*, unsigned int) = nullptr;
  Return (*ecc_errors)(Device, int, int, unsigned long long*) = nullptr;
  Return (*remapped_rows)(Device, unsigned int*, unsigned int*, unsigned int*,
                          unsigned int*) = nullptr;

  /// False when a function of the first group is missing.
  bool bind(void* library) {
    const auto find = [library](auto& function, const char* symbol) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, symbol));
      return function != nullptr;
    };
    find(capability, "nvmlDeviceGetCudaComputeCapability");
    find(bar1, "nvmlDeviceGetBAR1MemoryInfo");
    find(link_state, "nvmlDeviceGetNvLinkState");
    find(link_can, "nvmlDeviceGetNvLinkCapability");
    find(link_remote, "nvmlDeviceGetNvLinkRemotePciInfo_v2");
    find(link_remote_type, "nvmlDeviceGetNvLinkRemoteDeviceType");
    find(link_errors, "nvmlDeviceGetNvLinkErrorCounter");
    find(fields, "nvmlDeviceGetFieldValues");
    find(fabric, "nvmlDeviceGetGpuFabricInfoV");
    find(c2c, "nvmlDeviceGetC2cModeInfoV");
    find(mig_mode, "nvmlDeviceGetMigMode");
    find(mig_count, "nvmlDeviceGetMaxMigDeviceCount");
    find(mig_device, "nvmlDeviceGetMigDeviceHandleByIndex");
    find(uuid, "nvmlDeviceGetUUID");
    find(ecc_errors, "nvmlDeviceGetTotalEccErrors");
    find(remapped_rows, "nvmlDeviceGetRemappedRows");
    return find(init, "nvmlInit_v2") && find(shutdown, "nvmlShutdown") &&
           find(count, "nvmlDeviceGetCount_v2") &&
           find(by_index, "nvmlDeviceGetHandleByIndex_v2") && find(name, "nvmlDeviceGetName") &&
           find(memory, "nvmlDeviceGetMemoryInfo") && find(pci, "nvmlDeviceGetPciInfo_v3") &&
           find(error, "nvmlErrorString");
  }
};

}  // namespace paceline::agent::nvml
