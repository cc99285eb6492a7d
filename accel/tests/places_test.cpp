// SPDX-License-Identifier: Apache-2.0
// Addresses of many tensors by a framework's DLPack functions: the framework is this file.
#include <array>
#include <cstdint>

#include "../src/optim/device/exchange.hpp"
#include "check.hpp"
#include "paceline/optim_device.h"
#include "paceline/paceline.h"

namespace {

using paceline::optim::device::Exchange;
using paceline::optim::device::ExchangedTensor;

// An object is a number; 0 has no memory.
int begins_at(void* object, ExchangedTensor* out) {
  out->data = object;
  out->byte_offset = 3;
  return object == nullptr ? -1 : 0;
}

void* numbered(std::uintptr_t number) { return reinterpret_cast<void*>(number); }

Exchange framework() { return {1, 3, nullptr, nullptr, nullptr, nullptr, begins_at, nullptr}; }

}  // namespace

CASE(places_are_those_of_the_framework_up_to_the_first_that_it_refuses) {
  const Exchange exchange = framework();
  const std::array<void*, 4> objects{numbered(64), numbered(4096), nullptr, numbered(8)};
  std::array<std::uint64_t, 4> places{};
  CHECK_EQ(paceline_optim_places(&exchange, objects.data(), 2, places.data(), nullptr), PACELINE_OK);
  CHECK((places == std::array<std::uint64_t, 4>{67, 4099, 0, 0}));
  CHECK_EQ(paceline_optim_places(&exchange, &objects[1], 3, places.data(), nullptr), PACELINE_ESYSTEM);
  CHECK((places == std::array<std::uint64_t, 4>{4099, 4099, 0, 0}));
  CHECK_EQ(paceline_optim_places(&exchange, nullptr, 0, nullptr, nullptr), PACELINE_OK);
}

CASE(layouts_differ_where_types_devices_sizes_or_strides_do) {
  // An object is the tensor that the framework tells of.
  Exchange exchange = framework();
  exchange.tensor_of = [](void* object, ExchangedTensor* out) {
    *out = *static_cast<const ExchangedTensor*>(object);
    return 0;
  };
  std::array<std::int64_t, 2> sizes{6, 4}, transposed_sizes{4, 6}, strides{4, 1}, transposed_strides{1, 6};
  const ExchangedTensor one{nullptr, 2, 0, 2, 2, 32, 1, sizes.data(), strides.data(), 0};
  std::array<ExchangedTensor, 9> tensors;
  tensors.fill(one);
  tensors[0].byte_offset = 64;  // where it lies is not how
  tensors[1].type_code = 4;
  tensors[2].type_bits = 16;
  tensors[3].device_id = 1;
  tensors[4].device_type = 1;
  tensors[5].dimensions = 1;
  tensors[6].shape = transposed_sizes.data();
  tensors[7].strides = transposed_strides.data();
  tensors[8].strides = nullptr;
  std::array<void*, 10> objects{const_cast<ExchangedTensor*>(&one)};
  for (std::size_t i = 0; i < tensors.size(); ++i) objects[i + 1] = &tensors[i];
  std::array<std::uint64_t, 10> places{}, layouts{};
  CHECK_EQ(paceline_optim_places(&exchange, objects.data(), 10, places.data(), layouts.data()), PACELINE_OK);
  for (std::size_t i = 0; i < 10; ++i)
    for (std::size_t j = 0; j < i; ++j) CHECK_EQ(layouts[i] == layouts[j], i == 1);
}

CASE(places_are_not_asked_of_a_table_that_is_not_known) {
  const std::array<void*, 1> objects{numbered(64)};
  std::array<std::uint64_t, 1> places{};
  const auto asked = [&](const Exchange* exchange) {
    return paceline_optim_places(exchange, objects.data(), 1, places.data(), nullptr);
  };
  Exchange later = framework();
  later.major = 2;
  CHECK_EQ(asked(&later), PACELINE_EINVAL);
  Exchange without = framework();
  without.tensor_of = nullptr;
  CHECK_EQ(asked(&without), PACELINE_EINVAL);
  CHECK_EQ(asked(nullptr), PACELINE_EINVAL);
  const Exchange exchange = framework();
  CHECK_EQ(paceline_optim_places(&exchange, nullptr, 1, places.data(), nullptr), PACELINE_EINVAL);
  CHECK_EQ(paceline_optim_places(&exchange, objects.data(), 1, nullptr, nullptr), PACELINE_EINVAL);
}
