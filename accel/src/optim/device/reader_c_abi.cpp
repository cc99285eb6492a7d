// SPDX-License-Identifier: Apache-2.0
// The exported functions (optim_reader.h). Nothing here allocates or throws.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "paceline/optim_reader.h"
#include "paceline/paceline.h"

namespace {

using Reader = paceline_optim_reader;
using Seen = paceline_optim_seen;

uint64_t address_of(const void* object) { return reinterpret_cast<std::uintptr_t>(object); }

void* tensor_of(const Reader& reader, void* object) {
  return static_cast<std::byte*>(object) + reader.handle;
}

uint64_t type_of(const Reader& reader, const void* object) {
  uint64_t type = 0;
  std::memcpy(&type, static_cast<const std::byte*>(object) + reader.type, sizeof type);
  return type;
}

bool is_plain(const Reader& reader, const void* object) {
  const uint64_t type = type_of(reader, object);
  return type == reader.tensor || type == reader.parameter;
}

const void* implementation_of(const void* tensor) {
  const void* implementation = nullptr;
  std::memcpy(&implementation, tensor, sizeof implementation);
  return implementation;
}

// False where PyTorch refuses.
bool find(const Reader& reader, void* tensor, uint64_t& place) {
  int32_t kind = 0;
  void* data = nullptr;
  if (reader.get_layout != nullptr &&
      (reader.get_layout(tensor, &kind) != 0 || kind != reader.strided))
    return false;
  if (reader.get_data_ptr(tensor, &data) != 0) return false;
  place = address_of(data);
  return true;
}

bool hash_layout(const Reader& reader, void* tensor, uint64_t& hash) {
  int32_t type = 0, device_type = 0, device_index = 0;
  int64_t dimensions = 0;
  int64_t* sizes = nullptr;
  int64_t* strides = nullptr;
  if (reader.get_dtype(tensor, &type) != 0 || reader.get_device_type(tensor, &device_type) != 0 ||
      reader.get_device_index(tensor, &device_index) != 0 ||
      reader.get_dim(tensor, &dimensions) != 0 || reader.get_sizes(tensor, &sizes) != 0 ||
      reader.get_strides(tensor, &strides) != 0)
    return false;
  const bool is_negative = reader.is_neg != nullptr && reader.is_neg(tensor);
  uint64_t state = 0;
  // no step of it is lossy: of two words each leads to another state
  const auto mix = [&state](int64_t word) {
    state = (state ^ static_cast<uint64_t>(word)) * 0x9E3779B97F4A7C15U;
    state ^= state >> 32;
  };
  mix(int64_t{type} | int64_t{device_type} << 32);
  mix(int64_t{device_index} * 2 + (is_negative ? 1 : 0));
  mix(dimensions);
  for (int64_t i = 0; i < dimensions; ++i) {
    mix(sizes[i]);
    mix(strides[i]);
  }
  hash = state;
  return true;
}

bool look(const Reader& reader, void* object, Seen& seen) {
  void* const tensor = tensor_of(reader, object);
  seen.object = address_of(object);
  seen.type = type_of(reader, object);
  return find(reader, tensor, seen.place) && hash_layout(reader, tensor, seen.layout);
}

bool is_as_seen(const Reader& reader, void* object, const Seen& seen) {
  // What is no tensor may be there now, which has no such thing as a handle.
  if ((seen.object != 0 && address_of(object) != seen.object) ||
      type_of(reader, object) != seen.type)
    return false;
  Seen now;
  return look(reader, object, now) && now.place == seen.place && now.layout == seen.layout;
}

// Calls visit(object, is_value) for each key of the state, and each name and value of its dict,
// until it answers no; whether it never did.
template <typename Visit>
bool walk(const Reader& reader, void* state, Visit visit) {
  std::intptr_t at = 0;
  void* key = nullptr;
  void* held = nullptr;
  while (reader.dict_next(state, &at, &key, &held) != 0) {
    if (type_of(reader, held) != reader.dict || !visit(key, false)) return false;
    std::intptr_t at_inner = 0;
    void* name = nullptr;
    void* value = nullptr;
    while (reader.dict_next(held, &at_inner, &name, &value) != 0)
      if (!visit(name, false) || !visit(value, true)) return false;
  }
  return true;
}

bool is_known(const Reader* reader) { return reader != nullptr && reader->size == sizeof *reader; }

int why_not(const Reader* reader, const void* objects, uint64_t count, const void* answers) {
  const bool given = count == 0 || (objects != nullptr && answers != nullptr);
  return is_known(reader) && given ? PACELINE_OK : PACELINE_EINVAL;
}

}  // namespace

extern "C" {

int paceline_optim_places(const Reader* reader, void* const* objects, uint64_t count,
                          uint64_t* places) {
  if (const int code = why_not(reader, objects, count, places); code != PACELINE_OK) return code;
  for (uint64_t i = 0; i < count; ++i)
    if (!find(*reader, tensor_of(*reader, objects[i]), places[i])) return PACELINE_ESYSTEM;
  return PACELINE_OK;
}

int paceline_optim_see(const Reader* reader, void* const* objects, uint64_t count, Seen* seen) {
  if (const int code = why_not(reader, objects, count, seen); code != PACELINE_OK) return code;
  for (uint64_t i = 0; i < count; ++i)
    if (!look(*reader, objects[i], seen[i])) return PACELINE_ESYSTEM;
  return PACELINE_OK;
}

int paceline_optim_is_as_seen(const Reader* reader, void* const* objects, uint64_t count,
                              const Seen* seen) {
  if (const int code = why_not(reader, objects, count, seen); code != PACELINE_OK) return code;
  for (uint64_t i = 0; i < count; ++i)
    if (!is_as_seen(*reader, objects[i], seen[i])) return 0;
  return 1;
}

int paceline_optim_list_is(const Reader* reader, void* list, void* const* objects, uint64_t count) {
  if (const int code = why_not(reader, objects, count, objects); code != PACELINE_OK) return code;
  if (list == nullptr) return PACELINE_EINVAL;
  if (type_of(*reader, list) != reader->list) return 0;
  const auto size = static_cast<std::intptr_t>(count);
  if (reader->list_size(list) != size) return 0;
  for (std::intptr_t i = 0; i < size; ++i)
    if (reader->list_item(list, i) != objects[i]) return 0;
  return 1;
}

int paceline_optim_see_state(const Reader* reader, void* state, Seen* seen, uint64_t capacity,
                             uint64_t* count) {
  if (!is_known(reader) || state == nullptr || count == nullptr ||
      (seen == nullptr && capacity > 0))
    return PACELINE_EINVAL;
  uint64_t used = 0;
  const bool all = walk(*reader, state, [&](void* object, bool is_value) {
    if (used == capacity) return false;
    Seen& row = seen[used++];
    row = {.object = address_of(object), .type = 0, .place = 0, .layout = 0};
    return !is_value || !is_plain(*reader, object) || look(*reader, object, row);
  });
  *count = used;
  return all ? PACELINE_OK : PACELINE_ESYSTEM;
}

int paceline_optim_state_is_as_seen(const Reader* reader, void* state, const Seen* seen,
                                    uint64_t count) {
  if (!is_known(reader) || state == nullptr || (seen == nullptr && count > 0))
    return PACELINE_EINVAL;
  uint64_t used = 0;
  const bool all = walk(*reader, state, [&](void* object, bool) {
    if (used == count) return false;
    const Seen& row = seen[used++];
    return row.type == 0 ? address_of(object) == row.object : is_as_seen(*reader, object, row);
  });
  return all && used == count ? 1 : 0;
}

int paceline_optim_gradients(const Reader* reader, void* const* objects, uint64_t count,
                             const Seen* seen, uint64_t* places) {
  if (const int code = why_not(reader, objects, count, places); code != PACELINE_OK) return code;
  if (seen == nullptr && count > 0) return PACELINE_EINVAL;
  if (reader->grad == nullptr) return PACELINE_ESYSTEM;
  for (uint64_t i = 0; i < count; ++i) {
    void* const grad = reader->grad(implementation_of(tensor_of(*reader, objects[i])));
    uint64_t layout = 0;
    if (implementation_of(grad) == reader->undefined || !find(*reader, grad, places[i]) ||
        !hash_layout(*reader, grad, layout) || layout != seen[i].layout)
      return 0;
    // one that wraps others may have no memory of its own
    if ((places[i] == 0) != (seen[i].place == 0)) return 0;
  }
  return 1;
}

int paceline_optim_versions(const Reader* reader, void* const* objects, uint64_t count,
                            int64_t* versions) {
  if (const int code = why_not(reader, objects, count, versions); code != PACELINE_OK) return code;
  if (reader->version == nullptr) return PACELINE_ESYSTEM;
  for (uint64_t i = 0; i < count; ++i) {
    void* const tensor = tensor_of(*reader, objects[i]);
    if (reader->is_inference(tensor)) return PACELINE_ESYSTEM;
    versions[i] = reader->version(tensor);
  }
  return PACELINE_OK;
}

int paceline_optim_versions_are(const Reader* reader, void* const* objects, uint64_t count,
                                const int64_t* versions) {
  if (const int code = why_not(reader, objects, count, versions); code != PACELINE_OK) return code;
  if (reader->version == nullptr) return PACELINE_ESYSTEM;
  for (uint64_t i = 0; i < count; ++i) {
    void* const tensor = tensor_of(*reader, objects[i]);
    if (reader->is_inference(tensor) || reader->version(tensor) != versions[i]) return 0;
  }
  return 1;
}

int paceline_optim_mark_written(const Reader* reader, void* const* objects, uint64_t count) {
  if (const int code = why_not(reader, objects, count, objects); code != PACELINE_OK) return code;
  if (reader->bump_version == nullptr) return PACELINE_ESYSTEM;
  for (uint64_t i = 0; i < count; ++i) {
    void* const tensor = tensor_of(*reader, objects[i]);
    if (reader->is_inference(tensor)) return PACELINE_ESYSTEM;
    reader->bump_version(tensor);
  }
  return PACELINE_OK;
}

}  // extern "C"
