// SPDX-License-Identifier: Apache-2.0
// The functions of optim_device.h. Each checks its arguments and makes one call; no exception
// leaves it.
#include <exception>
#include <string>

#include "../../cuda/reason.hpp"
#include "device_step.hpp"

namespace optim = paceline::optim;

extern "C" {

int paceline_optim_device_open(int32_t device, const char* folder, char* why, uint64_t why_bytes) {
  if (folder == nullptr) return PACELINE_EINVAL;
  try {
    const std::string problem = optim::device::open(device, folder);
    return paceline::cuda::tell(problem, why, why_bytes) ? PACELINE_OK : PACELINE_EDEVICE;
  } catch (const std::exception&) {
    return PACELINE_ESYSTEM;
  }
}

int paceline_optim_counts_are(const float* const* steps, const float* counts,
                              uint64_t tensor_count) {
  if (tensor_count > 0 && (steps == nullptr || counts == nullptr)) return PACELINE_EINVAL;
  for (uint64_t i = 0; i < tensor_count; ++i)
    if (*steps[i] != counts[i]) return 0;
  return 1;
}

int paceline_optim_count(float* const* steps, float* counts, const void* const* grads,
                         uint64_t tensor_count) {
  if (tensor_count > 0 && (steps == nullptr || counts == nullptr || grads == nullptr))
    return PACELINE_EINVAL;
  for (uint64_t i = 0; i < tensor_count; ++i)
    if (grads[i] != nullptr) *steps[i] = counts[i] += 1.0F;
  return PACELINE_OK;
}

int paceline_optim_device_table(const struct paceline_optim_group* groups, uint32_t group_count,
                                const struct paceline_optim_tensor* tensors, uint64_t tensor_count,
                                void* image, uint64_t* image_bytes, uint64_t* table_bytes) {
  if ((groups == nullptr && group_count > 0) || (tensors == nullptr && tensor_count > 0))
    return PACELINE_EINVAL;
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
