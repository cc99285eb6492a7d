// SPDX-License-Identifier: Apache-2.0
// Where many tensors lie, by the functions of a PyTorch that is this file.
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "check.hpp"
#include "paceline/optim_device.h"
#include "paceline/paceline.h"

namespace {

constexpr int32_t kStrided = 3;

// What is told of, behind whatever else is in an object. Without memory, it is refused.
struct Told {
  std::uintptr_t place = 64;
  int32_t layout = kStrided, dtype = 6, device_type = 1, device_index = 0;
  std::vector<int64_t> sizes{6, 4}, strides{4, 1};
};

struct Object {
  void* count = nullptr;
  const void* type = &kStrided;
  Told told;
};

const Told& of(void* tensor) { return *static_cast<const Told*>(tensor); }

template <auto member>
int32_t get(void* tensor, int32_t* out) {
  *out = of(tensor).*member;
  return 0;
}

template <auto member>
int32_t get_numbers(void* tensor, int64_t** out) {
  *out = const_cast<int64_t*>((of(tensor).*member).data());
  return 0;
}

int32_t get_data(void* tensor, void** out) {
  *out = reinterpret_cast<void*>(of(tensor).place);
  return of(tensor).place == 0 ? 1 : 0;
}

int32_t get_dim(void* tensor, int64_t* out) {
  *out = static_cast<int64_t>(of(tensor).sizes.size());
  return 0;
}

paceline_optim_reader known_reader() {
  return {.size = sizeof(paceline_optim_reader),
          .strided = kStrided,
          .type = offsetof(Object, type),
          .handle = offsetof(Object, told),
          .get_layout = get<&Told::layout>,
          .get_data_ptr = get_data,
          .get_dtype = get<&Told::dtype>,
          .get_device_type = get<&Told::device_type>,
          .get_device_index = get<&Told::device_index>,
          .get_dim = get_dim,
          .get_sizes = get_numbers<&Told::sizes>,
          .get_strides = get_numbers<&Told::strides>};
}

}  // namespace

CASE(places_are_those_that_are_told_up_to_the_first_that_is_refused) {
  const paceline_optim_reader reader = known_reader();
  std::array<Object, 4> tensors{};
  tensors[1].told.place = 4096;
  tensors[2].told.place = 0;
  std::array<void*, 4> objects{};
  for (std::size_t i = 0; i < 4; ++i) objects[i] = &tensors[i];
  std::array<std::uint64_t, 4> places{};
  CHECK_EQ(paceline_optim_places(&reader, objects.data(), 2, places.data()), PACELINE_OK);
  CHECK((places == std::array<std::uint64_t, 4>{64, 4096, 0, 0}));
  CHECK_EQ(paceline_optim_places(&reader, &objects[1], 3, places.data()), PACELINE_ESYSTEM);
  CHECK((places == std::array<std::uint64_t, 4>{4096, 4096, 0, 0}));
  tensors[0].told.layout = kStrided + 1;
  CHECK_EQ(paceline_optim_places(&reader, objects.data(), 1, places.data()), PACELINE_ESYSTEM);
  CHECK_EQ(paceline_optim_places(&reader, nullptr, 0, nullptr), PACELINE_OK);
}

CASE(what_was_seen_differs_where_types_devices_sizes_strides_or_places_do) {
  const paceline_optim_reader reader = known_reader();
  std::array<Object, 10> tensors{};
  tensors[2].told.dtype = 5;
  tensors[3].told.device_index = 1;
  tensors[4].told.device_type = 0;
  tensors[5].told.sizes = {6};
  tensors[6].told.sizes = {4, 6};
  tensors[7].told.strides = {1, 6};
  tensors[8].told.sizes = tensors[8].told.strides = {};
  tensors[9].told.place = 4096;
  Object one;
  std::array<void*, 2> objects{&one, &one};
  std::array<paceline_optim_seen, 2> seen{};
  CHECK_EQ(paceline_optim_see(&reader, objects.data(), 2, seen.data()), PACELINE_OK);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    one.told = tensors[i].told;
    CHECK_EQ(paceline_optim_is_as_seen(&reader, objects.data(), 2, seen.data()), i < 2 ? 1 : 0);
  }
  one = {};
  CHECK_EQ(paceline_optim_is_as_seen(&reader, objects.data(), 2, seen.data()), 1);
  objects[1] = tensors.data();
  CHECK_EQ(paceline_optim_is_as_seen(&reader, objects.data(), 2, seen.data()), 0);
  seen[1].object = 0;
  CHECK_EQ(paceline_optim_is_as_seen(&reader, objects.data(), 2, seen.data()), 1);
}

CASE(what_is_of_another_type_is_not_asked) {
  const paceline_optim_reader reader = known_reader();
  Object one;
  void* object = &one;
  paceline_optim_seen seen{};
  CHECK_EQ(paceline_optim_see(&reader, &object, 1, &seen), PACELINE_OK);
  // Its functions would read what is not there.
  paceline_optim_reader fatal = reader;
  fatal.get_layout = nullptr;
  one.type = nullptr;
  CHECK_EQ(paceline_optim_is_as_seen(&fatal, &object, 1, &seen), 0);
  one = {};
  one.told.place = 0;
  CHECK_EQ(paceline_optim_see(&reader, &object, 1, &seen), PACELINE_ESYSTEM);
  CHECK_EQ(paceline_optim_is_as_seen(&reader, &object, 1, &seen), 0);
}

CASE(places_are_not_asked_of_what_is_not_known) {
  Object tensor;
  const std::array<void*, 1> objects{&tensor};
  std::array<std::uint64_t, 1> places{};
  paceline_optim_reader later = known_reader();
  later.size += 8;
  CHECK_EQ(paceline_optim_places(&later, objects.data(), 1, places.data()), PACELINE_EINVAL);
  CHECK_EQ(paceline_optim_places(nullptr, objects.data(), 1, places.data()), PACELINE_EINVAL);
  const paceline_optim_reader reader = known_reader();
  CHECK_EQ(paceline_optim_places(&reader, nullptr, 1, places.data()), PACELINE_EINVAL);
  CHECK_EQ(paceline_optim_places(&reader, objects.data(), 1, nullptr), PACELINE_EINVAL);
  CHECK_EQ(paceline_optim_see(&reader, objects.data(), 1, nullptr), PACELINE_EINVAL);
  CHECK_EQ(paceline_optim_is_as_seen(&later, objects.data(), 1, nullptr), PACELINE_EINVAL);
}
