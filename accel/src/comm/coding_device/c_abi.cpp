// SPDX-License-Identifier: Apache-2.0
// The exported functions (coding_device.h): arguments checked, then one call. No exception leaves.
#include <algorithm>
#include <cstring>
#include <exception>

#include "device_coding.hpp"

namespace coding_device = paceline::comm::coding_device;

namespace {

int launch_coding(coding_device::Direction direction, const paceline_coding_device_call* call) {
  if (call == nullptr) return PACELINE_EINVAL;
  try {
    return coding_device::launch(direction, *call);
  } catch (const std::exception&) {
    return PACELINE_ESYSTEM;
  }
}

}  // namespace

extern "C" {

int paceline_coding_device_open(int32_t device, const char* folder, char* why, uint64_t why_bytes) {
  if (folder == nullptr) return PACELINE_EINVAL;
  try {
    const std::string problem = coding_device::open(device, folder);
    if (why != nullptr && why_bytes > 0) {
      const std::size_t length =
          std::min<std::size_t>(problem.size(), static_cast<std::size_t>(why_bytes) - 1);
      std::memcpy(why, problem.data(), length);
      why[length] = '\0';
    }
    return problem.empty() ? PACELINE_OK : PACELINE_EDEVICE;
  } catch (const std::exception&) {
    return PACELINE_ESYSTEM;
  }
}

int paceline_coding_device_encode(const struct paceline_coding_device_call* call) {
  return launch_coding(coding_device::Direction::kEncode, call);
}

int paceline_coding_device_decode(const struct paceline_coding_device_call* call) {
  return launch_coding(coding_device::Direction::kDecode, call);
}

}  // extern "C"
