// SPDX-License-Identifier: Apache-2.0
// The exported functions (optim_device.h): arguments checked, then one call. No exception leaves.
#include <algorithm>
#include <cstring>
#include <exception>
#include <string>

#include "device_step.hpp"
#include "exchange.hpp"

namespace optim = paceline::optim;

namespace {

int told(const std::string& problem, char* why, uint64_t why_bytes) {
  if (why != nullptr && why_bytes > 0) {
    const std::size_t length = std::min<std::size_t>(problem.size(), static_cast<std::size_t>(why_bytes) - 1);
    std::memcpy(why, problem.data(), length);
    why[length] = '\0';
  }
  return problem.empty() ? PACELINE_OK : PACELINE_EDEVICE;
}

uint64_t layout_of(const optim::device::ExchangedTensor& tensor) {
  uint64_t state = 0;
  const auto mix = [&state](int64_t word) {  // no step of it is lossy: of two words each leads to another state
    state = (state ^ static_cast<uint64_t>(word)) * 0x9E3779B97F4A7C15U;
    state ^= state >> 32;
  };
  mix(int64_t{tensor.type_code} | int64_t{tensor.type_bits} << 8 | int64_t{tensor.type_lanes} << 16);
  mix(tensor.device_type);
  mix(tensor.device_id);
  mix(tensor.strides != nullptr ? 1 : 0);
  mix(tensor.dimensions);
  for (int32_t i = 0; i < tensor.dimensions; ++i) {
    mix(tensor.shape[i]);
    if (tensor.strides != nullptr) mix(tensor.strides[i]);
  }
  return state;
}

}  // namespace

extern "C" {

int paceline_optim_device_open(int32_t device, const char* folder, char* why, uint64_t why_bytes) {
  if (folder == nullptr) return PACELINE_EINVAL;
  try {
    return told(optim::device::open(device, folder), why, why_bytes);
  } catch (const std::exception&) {
    return PACELINE_ESYSTEM;
  }
}

int paceline_optim_device_everywhere(const char* folder, char* why, uint64_t why_bytes) {
  if (folder == nullptr) return PACELINE_EINVAL;
  try {
    return told(optim::device::why_not_everywhere(folder), why, why_bytes);
  } catch (const std::exception&) {
    return PACELINE_ESYSTEM;
  }
}

int paceline_optim_counts_are(const float* const* steps, const float* counts, uint64_t tensor_count) {
  if (tensor_count > 0 && (steps == nullptr || counts == nullptr)) return PACELINE_EINVAL;
  for (uint64_t i = 0; i < tensor_count; ++i)
    if (*steps[i] != counts[i]) return 0;
  return 1;
}

int paceline_optim_count(float* const* steps, float* counts, const void* const* grads, uint64_t tensor_count) {
  if (tensor_count > 0 && (steps == nullptr || counts == nullptr || grads == nullptr)) return PACELINE_EINVAL;
  for (uint64_t i = 0; i < tensor_count; ++i)
    if (grads[i] != nullptr) *steps[i] = counts[i] += 1.0F;
  return PACELINE_OK;
}

int paceline_optim_places(const void* exchange, void* const* objects, uint64_t count, uint64_t* places,
                          uint64_t* layouts) {
  if (exchange == nullptr || (count > 0 && (objects == nullptr || places == nullptr))) return PACELINE_EINVAL;
  const auto* const table = static_cast<const optim::device::Exchange*>(exchange);
  if (table->major != 1 || table->tensor_of == nullptr) return PACELINE_EINVAL;
  for (uint64_t i = 0; i < count; ++i) {
    optim::device::ExchangedTensor tensor;
    if (table->tensor_of(objects[i], &tensor) != 0) return PACELINE_ESYSTEM;
    places[i] = reinterpret_cast<std::uintptr_t>(tensor.data) + tensor.byte_offset;
    if (layouts != nullptr) layouts[i] = layout_of(tensor);
  }
  return PACELINE_OK;
}

int paceline_optim_device_table(const struct paceline_optim_group* groups, uint32_t group_count,
                                const struct paceline_optim_tensor* tensors, uint64_t tensor_count, void* image,
                                uint64_t* image_bytes, uint64_t* table_bytes) {
  if ((groups == nullptr && group_count > 0) || (tensors == nullptr && tensor_count > 0)) return PACELINE_EINVAL;
  if (image_bytes == nullptr || table_bytes == nullptr) return PACELINE_EINVAL;
  const std::span<const optim::Tensor> rows{tensors, static_cast<std::size_t>(tensor_count)};
  for (const optim::Tensor& row : rows)
    if (row.count < 0) return PACELINE_EINVAL;
  const optim::device::Layout layout(rows);
  *image_bytes = layout.sums;
  *table_bytes = layout.end;
  return optim::device::make_image({groups, group_count}, rows, layout, image);
}

int paceline_optim_device_step(const struct paceline_optim_device_call* call) {
  if (call == nullptr) return PACELINE_EINVAL;
  try {
    return optim::device::step(*call);
  } catch (const std::exception&) {
    return PACELINE_ESYSTEM;
  }
}

}  // extern "C"
