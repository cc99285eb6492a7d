// SPDX-License-Identifier: Apache-2.0
// The functions of layouts.h. The structs are those of DLPack 1.3, which stay as they are until
// version 2.
#include <cstddef>
#include <cstdint>
#include <span>

#include "paceline/layouts.h"

namespace {

struct DlTensor {
  void* data;
  std::int32_t device_type;
  std::int32_t device_id;
  std::int32_t dimensions;
  std::uint8_t type_code;
  std::uint8_t type_bits;
  std::uint16_t type_lanes;
  const std::int64_t* sizes;
  const std::int64_t* strides;
  std::uint64_t offset;
};

struct DlExchange {
  std::uint32_t major;
  std::uint32_t minor;
  const DlExchange* older;
  void* allocate;
  void* export_owned;
  void* import_owned;
  int (*read)(void* object, DlTensor* tensor);
  void* stream;
};
static_assert(sizeof(DlTensor) == 48 && sizeof(DlExchange) == 56);

constexpr std::size_t kSizesAt = 3;  // in a layout: where the sizes lay
constexpr std::size_t kAhead = 8;    // tensors between a hint and its use

bool is_readable(const DlExchange* exchange) {
  return exchange != nullptr && exchange->major == 1 && exchange->minor >= 3 &&
         exchange->read != nullptr;
}

std::int64_t address_of(const DlTensor& tensor) {
  return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(tensor.data) + tensor.offset);
}

std::int64_t kind_of(const DlTensor& tensor) {
  return static_cast<std::int64_t>(tensor.type_code) |
         static_cast<std::int64_t>(tensor.type_bits) << 8 |
         static_cast<std::int64_t>(tensor.type_lanes) << 16 |
         static_cast<std::int64_t>(tensor.dimensions) << 32;
}

std::int64_t device_of(const DlTensor& tensor) {
  return static_cast<std::int64_t>(tensor.device_type) << 32 |
         static_cast<std::uint32_t>(tensor.device_id);
}

// A dimension of one element is never stepped along, so its stride means nothing.
std::int64_t stride_of(const DlTensor& tensor, std::int32_t dimension) {
  return tensor.sizes[dimension] == 1 ? 0 : tensor.strides[dimension];
}

bool is_empty(const DlTensor& tensor) {
  for (std::int32_t d = 0; d < tensor.dimensions; ++d)
    if (tensor.sizes[d] == 0) return true;
  return false;
}

// Whether all but the address is as the words say.
bool lies_as(const DlTensor& tensor, const std::int64_t* words) {
  if (words[1] != kind_of(tensor) || words[2] != device_of(tensor)) return false;
  for (std::int32_t d = 0; d < tensor.dimensions; ++d) {
    const std::int64_t* dimension = words + PACELINE_LAYOUT_WORDS + 2 * std::ptrdiff_t{d};
    if (dimension[0] != tensor.sizes[d] || dimension[1] != stride_of(tensor, d)) return false;
  }
  return true;
}

std::size_t words_of(const std::int64_t* layout) {
  return PACELINE_LAYOUT_WORDS + 2 * static_cast<std::size_t>(layout[1] >> 32);
}

// Asks the caches for a tensor that is read a few tensors later. The framework keeps the sizes of a
// small tensor within its own object, so the lines around them are what it will read. After a
// backward the caches have lost them. If the object is gone, the hint does no harm.
void fetch(const void* object, const std::int64_t* layout) {
  constexpr std::uintptr_t kLine = 64;
  const auto sizes = static_cast<std::uintptr_t>(layout[kSizesAt]);
  __builtin_prefetch(object);
  // Numbers until here: a scalar has no sizes, and there are no lines around a null pointer.
  for (const std::uintptr_t line : {sizes - kLine, sizes, sizes + kLine})
    __builtin_prefetch(reinterpret_cast<const void*>(line));
}

}  // namespace

extern "C" {

int paceline_layouts_read(const void* exchange, void* const* objects, uint64_t count,
                          int64_t* words, uint64_t capacity) {
  const auto* const from = static_cast<const DlExchange*>(exchange);
  if (!is_readable(from)) return PACELINE_EINVAL;
  std::size_t used = 0;
  for (void* const object : std::span(objects, static_cast<std::size_t>(count))) {
    DlTensor tensor{};
    if (from->read(object, &tensor) != 0) return PACELINE_ESYSTEM;
    const std::size_t needed =
        PACELINE_LAYOUT_WORDS + 2 * static_cast<std::size_t>(tensor.dimensions);
    if (capacity - used < needed) return PACELINE_EINVAL;
    words[used++] = address_of(tensor);
    words[used++] = kind_of(tensor);
    words[used++] = device_of(tensor);
    words[used++] = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(tensor.sizes));
    for (std::int32_t d = 0; d < tensor.dimensions; ++d) {
      words[used++] = tensor.sizes[d];
      words[used++] = stride_of(tensor, d);
    }
  }
  return 0;
}

int paceline_layouts_same(const void* exchange, void* const* objects, uint64_t count,
                          const int64_t* words, uint64_t* addresses) {
  const auto* const from = static_cast<const DlExchange*>(exchange);
  if (!is_readable(from)) return PACELINE_EINVAL;
  const std::int64_t* ahead = words;
  std::size_t fetched = 0;
  for (std::size_t i = 0; i < count; ++i) {
    for (; fetched < count && fetched <= i + kAhead; ++fetched, ahead += words_of(ahead))
      fetch(objects[fetched], ahead);
    DlTensor tensor{};
    if (from->read(objects[i], &tensor) != 0) return PACELINE_ESYSTEM;
    if (!lies_as(tensor, words)) return 0;
    const std::int64_t address = address_of(tensor);
    if (addresses == nullptr) {
      if (words[0] != address) return 0;
    } else {
      if (address == 0 && !is_empty(tensor)) return 0;
      addresses[i] = static_cast<std::uint64_t>(address);
    }
    words += words_of(words);
  }
  return 1;
}

}  // extern "C"
