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
  CHECK_EQ(paceline_optim_places(&exchange, objects.data(), 2, places.data()), PACELINE_OK);
  CHECK((places == std::array<std::uint64_t, 4>{67, 4099, 0, 0}));
  CHECK_EQ(paceline_optim_places(&exchange, &objects[1], 3, places.data()), PACELINE_ESYSTEM);
  CHECK((places == std::array<std::uint64_t, 4>{4099, 4099, 0, 0}));
  CHECK_EQ(paceline_optim_places(&exchange, nullptr, 0, nullptr), PACELINE_OK);
}

CASE(places_are_not_asked_of_a_table_that_is_not_known) {
  const std::array<void*, 1> objects{numbered(64)};
  std::array<std::uint64_t, 1> places{};
  const auto asked = [&](const Exchange* exchange) {
    return paceline_optim_places(exchange, objects.data(), 1, places.data());
  };
  Exchange later = framework();
  later.major = 2;
  CHECK_EQ(asked(&later), PACELINE_EINVAL);
  Exchange without = framework();
  without.tensor_of = nullptr;
  CHECK_EQ(asked(&without), PACELINE_EINVAL);
  CHECK_EQ(asked(nullptr), PACELINE_EINVAL);
  const Exchange exchange = framework();
  CHECK_EQ(paceline_optim_places(&exchange, nullptr, 1, places.data()), PACELINE_EINVAL);
  CHECK_EQ(paceline_optim_places(&exchange, objects.data(), 1, nullptr), PACELINE_EINVAL);
}
