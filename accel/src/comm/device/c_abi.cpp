// SPDX-License-Identifier: Apache-2.0
// The exported functions (comm_device.h): arguments checked, then one call. No exception leaves.
#include "../c_abi.hpp"

#include "paceline/comm_device.h"

namespace comm_core = paceline::comm;

extern "C" {

int paceline_comm_device_open(struct paceline_comm* comm, int32_t device, const char* folder,
                              struct paceline_comm_device* used, char* why, uint64_t why_bytes) {
  const bool usable = folder != nullptr && (used == nullptr || used->size == sizeof *used);
  return comm_core::guarded(comm, usable, [&](comm_core::Communicator& it) {
    if (auto opened = it.open_device(device, folder); !opened) {
      comm_core::copy_text(opened.error().text, why, why_bytes);
      return opened.error().code;
    }
    const comm_core::DeviceUse use = it.device_use();
    if (used != nullptr)
      *used = {.size = sizeof *used, .reserved = 0, .pool_bytes = use.pool_bytes, .stream = use.stream};
    return PACELINE_OK + 0;
  });
}

int paceline_comm_device_allreduce_start(struct paceline_comm* comm, void* data, uint64_t count, uint32_t dtype,
                                         void* stream, uint64_t* ticket) {
  const bool usable = ticket != nullptr && (data != nullptr || count == 0) && comm_core::fits(count, dtype, 1);
  return comm_core::guarded(comm, usable, [&](comm_core::Communicator& it) {
    const auto started = it.start_device_allreduce(reinterpret_cast<paceline::cuda::Address>(data), count,
                                                   comm_core::Type{dtype}, stream);
    if (!started) return started.error();
    *ticket = *started;
    return PACELINE_OK + 0;
  });
}

int paceline_comm_device_wait(struct paceline_comm* comm, uint64_t ticket, void* stream) {
  return comm_core::guarded(comm, true, [&](comm_core::Communicator& it) { return it.wait_device(ticket, stream); });
}

}  // extern "C"
