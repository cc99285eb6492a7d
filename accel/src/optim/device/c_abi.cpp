// SPDX-License-Identifier: Apache-2.0
// The exported functions (optim_device.h): arguments checked, then one call. No exception leaves.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <string>

#include "device_step.hpp"

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

void* tensor_of(const paceline_optim_reader& reader, void* object) {
  return static_cast<std::byte*>(object) + reader.handle;
}

uint64_t type_of(const paceline_optim_reader& reader, const void* object) {
  uint64_t type = 0;
  std::memcpy(&type, static_cast<const std::byte*>(object) + reader.type, sizeof type);
  return type;
}

// False where PyTorch refuses.
bool find(const paceline_optim_reader& reader, void* tensor, uint64_t& place) {
  int32_t kind = 0;
  void* data = nullptr;
  if (reader.get_layout(tensor, &kind) != 0 || kind != reader.strided) return false;
  if (reader.get_data_ptr(tensor, &data) != 0) return false;
  place = reinterpret_cast<std::uintptr_t>(data);
  return true;
}

bool hash_layout(const paceline_optim_reader& reader, void* tensor, uint64_t& hash) {
  int32_t type = 0, device_type = 0, device_index = 0;
  int64_t dimensions = 0;
  int64_t* sizes = nullptr;
  int64_t* strides = nullptr;
  if (reader.get_dtype(tensor, &type) != 0 || reader.get_device_type(tensor, &device_type) != 0 ||
      reader.get_device_index(tensor, &device_index) != 0 || reader.get_dim(tensor, &dimensions) != 0 ||
      reader.get_sizes(tensor, &sizes) != 0 || reader.get_strides(tensor, &strides) != 0)
    return false;
  uint64_t state = 0;
  const auto mix = [&state](int64_t word) {  // no step of it is lossy: of two words each leads to another state
    state = (state ^ static_cast<uint64_t>(word)) * 0x9E3779B97F4A7C15U;
    state ^= state >> 32;
  };
  mix(int64_t{type} | int64_t{device_type} << 32);
  mix(device_index);
  mix(dimensions);
  for (int64_t i = 0; i < dimensions; ++i) {
    mix(sizes[i]);
    mix(strides[i]);
  }
  hash = state;
  return true;
}

bool look(const paceline_optim_reader& reader, void* object, paceline_optim_seen& seen) {
  void* const tensor = tensor_of(reader, object);
  seen.object = reinterpret_cast<std::uintptr_t>(object);
  seen.type = type_of(reader, object);
  return find(reader, tensor, seen.place) && hash_layout(reader, tensor, seen.layout);
}

int why_not(const paceline_optim_reader* reader, void* const* objects, uint64_t count, const void* answers) {
  const bool good =
      reader != nullptr && reader->size == sizeof *reader && (count == 0 || (objects != nullptr && answers != nullptr));
  return good ? PACELINE_OK : PACELINE_EINVAL;
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

int paceline_optim_places(const struct paceline_optim_reader* reader, void* const* objects, uint64_t count,
                          uint64_t* places) {
  if (const int code = why_not(reader, objects, count, places); code != PACELINE_OK) return code;
  for (uint64_t i = 0; i < count; ++i)
    if (!find(*reader, tensor_of(*reader, objects[i]), places[i])) return PACELINE_ESYSTEM;
  return PACELINE_OK;
}

int paceline_optim_see(const struct paceline_optim_reader* reader, void* const* objects, uint64_t count,
                       struct paceline_optim_seen* seen) {
  if (const int code = why_not(reader, objects, count, seen); code != PACELINE_OK) return code;
  for (uint64_t i = 0; i < count; ++i)
    if (!look(*reader, objects[i], seen[i])) return PACELINE_ESYSTEM;
  return PACELINE_OK;
}

int paceline_optim_is_as_seen(const struct paceline_optim_reader* reader, void* const* objects, uint64_t count,
                              const struct paceline_optim_seen* seen) {
  if (const int code = why_not(reader, objects, count, seen); code != PACELINE_OK) return code;
  for (uint64_t i = 0; i < count; ++i) {
    // What is no tensor may be there now, which has no such thing as a handle.
    const bool is_one = (seen[i].object == 0 || reinterpret_cast<std::uintptr_t>(objects[i]) == seen[i].object) &&
                        type_of(*reader, objects[i]) == seen[i].type;
    paceline_optim_seen now;
    if (!is_one || !look(*reader, objects[i], now) || now.place != seen[i].place || now.layout != seen[i].layout)
      return 0;
  }
  return 1;
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
