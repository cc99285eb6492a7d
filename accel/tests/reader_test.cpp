// SPDX-License-Identifier: Apache-2.0
// What many tensors are, by the functions of a Python and a PyTorch that are this file.
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "check.hpp"
#include "paceline/optim_reader.h"
#include "paceline/paceline.h"

namespace {

constexpr int32_t kStrided = 3;

// A tensor's implementation. Without memory, it is refused.
struct Told {
  std::uintptr_t place = 64;
  int32_t layout = kStrided, dtype = 6, device_type = 1, device_index = 0;
  std::vector<int64_t> sizes{6, 4}, strides{4, 1};
  bool is_negative = false, is_inference = false;
  int64_t version = 0;
  Told* grad = nullptr;
};

Told undefined;
const int kPlain = 0, kParameter = 0, kDict = 0, kList = 0, kOther = 0;  // types are addresses

// A Python object, whose tensor is behind whatever else is in it.
struct Object {
  void* count = nullptr;
  const void* type = &kPlain;
  Told* tensor = nullptr;
};

struct Tensor : Object {
  Told told;
  Tensor() { tensor = &told; }
};

struct Dict : Object {
  std::vector<std::pair<Object*, Object*>> items;
  Dict() { type = &kDict; }
};

struct List : Object {
  std::vector<Object*> items;
  List() { type = &kList; }
};

Told& of(const void* tensor) { return **static_cast<Told* const*>(tensor); }

template <auto member>
int32_t get(void* tensor, int32_t* out) {
  *out = of(tensor).*member;
  return 0;
}

template <auto member>
int32_t get_numbers(void* tensor, int64_t** out) {
  *out = (of(tensor).*member).data();
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

int next(void* dict, std::intptr_t* position, void** key, void** value) {
  const auto& items = static_cast<const Dict*>(static_cast<Object*>(dict))->items;
  if (*position == static_cast<std::intptr_t>(items.size())) return 0;
  const auto& [first, second] = items[static_cast<std::size_t>((*position)++)];
  *key = first;
  *value = second;
  return 1;
}

const std::vector<Object*>& items_of(void* list) {
  return static_cast<const List*>(static_cast<Object*>(list))->items;
}
std::intptr_t size_of(void* list) { return static_cast<std::intptr_t>(items_of(list).size()); }
void* item_of(void* list, std::intptr_t position) {
  return items_of(list)[static_cast<std::size_t>(position)];
}

void* grad_of(const void* implementation) {
  static Told* none = &undefined;
  auto* const told = static_cast<Told*>(const_cast<void*>(implementation));
  return told->grad == nullptr ? &none : &told->grad;
}

bool is_negative(const void* tensor) { return of(tensor).is_negative; }
bool is_inference(const void* tensor) { return of(tensor).is_inference; }
int64_t version_of(const void* tensor) { return of(tensor).version; }
void bump(const void* tensor) { ++of(tensor).version; }

paceline_optim_reader known_reader() {
  return {.size = sizeof(paceline_optim_reader),
          .strided = kStrided,
          .type = offsetof(Object, type),
          .handle = offsetof(Object, tensor),
          .tensor = reinterpret_cast<std::uintptr_t>(&kPlain),
          .parameter = reinterpret_cast<std::uintptr_t>(&kParameter),
          .dict = reinterpret_cast<std::uintptr_t>(&kDict),
          .list = reinterpret_cast<std::uintptr_t>(&kList),
          .get_layout = get<&Told::layout>,
          .get_data_ptr = get_data,
          .get_dtype = get<&Told::dtype>,
          .get_device_type = get<&Told::device_type>,
          .get_device_index = get<&Told::device_index>,
          .get_dim = get_dim,
          .get_sizes = get_numbers<&Told::sizes>,
          .get_strides = get_numbers<&Told::strides>,
          .list_size = size_of,
          .list_item = item_of,
          .dict_next = next,
          .grad = grad_of,
          .is_neg = is_negative,
          .is_inference = is_inference,
          .version = version_of,
          .bump_version = bump,
          .undefined = &undefined};
}

paceline_optim_reader without_inner() {
  paceline_optim_reader reader = known_reader();
  reader.grad = nullptr;
  reader.is_neg = nullptr;
  reader.version = nullptr;
  reader.bump_version = nullptr;
  return reader;
}

}  // namespace

CASE(places_are_those_that_are_told_up_to_the_first_that_is_refused) {
  const paceline_optim_reader reader = known_reader();
  std::array<Tensor, 4> tensors;
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
  std::array<Tensor, 11> tensors;
  tensors[2].told.dtype = 5;
  tensors[3].told.device_index = 1;
  tensors[4].told.device_type = 0;
  tensors[5].told.sizes = {6};
  tensors[6].told.sizes = {4, 6};
  tensors[7].told.strides = {1, 6};
  tensors[8].told.sizes = tensors[8].told.strides = {};
  tensors[9].told.place = 4096;
  tensors[10].told.is_negative = true;
  Tensor one;
  std::array<void*, 2> objects{&one, &one};
  std::array<paceline_optim_seen, 2> seen{};
  CHECK_EQ(paceline_optim_see(&reader, objects.data(), 2, seen.data()), PACELINE_OK);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    one.told = tensors[i].told;
    CHECK_EQ(paceline_optim_is_as_seen(&reader, objects.data(), 2, seen.data()), i < 2 ? 1 : 0);
  }
  one.told = {};
  CHECK_EQ(paceline_optim_is_as_seen(&reader, objects.data(), 2, seen.data()), 1);
  objects[1] = tensors.data();
  CHECK_EQ(paceline_optim_is_as_seen(&reader, objects.data(), 2, seen.data()), 0);
  seen[1].object = 0;
  CHECK_EQ(paceline_optim_is_as_seen(&reader, objects.data(), 2, seen.data()), 1);
}

CASE(what_is_of_another_type_is_not_asked) {
  const paceline_optim_reader reader = known_reader();
  Tensor one;
  void* object = &one;
  paceline_optim_seen seen{};
  CHECK_EQ(paceline_optim_see(&reader, &object, 1, &seen), PACELINE_OK);
  // Its functions would read what is not there.
  paceline_optim_reader fatal = reader;
  fatal.get_layout = nullptr;
  one.type = &kOther;
  CHECK_EQ(paceline_optim_is_as_seen(&fatal, &object, 1, &seen), 0);
  one.type = &kPlain;
  one.told.place = 0;
  CHECK_EQ(paceline_optim_see(&reader, &object, 1, &seen), PACELINE_ESYSTEM);
  CHECK_EQ(paceline_optim_is_as_seen(&reader, &object, 1, &seen), 0);
}

CASE(places_are_not_asked_of_what_is_not_known) {
  Tensor tensor;
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

CASE(a_state_is_as_seen_while_it_has_the_same_values_under_the_same_names) {
  const paceline_optim_reader reader = known_reader();
  Tensor key, first, second, other;
  Object name, other_name, number;
  name.type = other_name.type = number.type = &kOther;
  Dict held, state;
  held.items = {{&name, &first}, {&other_name, &number}};
  state.items = {{&key, &held}};
  const auto kept = held.items;
  std::array<paceline_optim_seen, 6> seen{};
  std::uint64_t count = 0;
  CHECK_EQ(paceline_optim_see_state(&reader, &state, seen.data(), 6, &count), PACELINE_OK);
  CHECK_EQ(count, 5U);
  const auto is_same = [&] {
    return paceline_optim_state_is_as_seen(&reader, &state, seen.data(), count) == 1;
  };
  CHECK(is_same());
  for (const auto& items :
       {std::vector<std::pair<Object*, Object*>>{{&other_name, &first}, {&name, &number}},
        {{&name, &second}, {&other_name, &number}},
        {{&name, &first}, {&other_name, &second}},
        {{&name, &number}, {&other_name, &first}},
        {{&name, &first}},
        {{&name, &first}, {&other_name, &number}, {&number, &number}}}) {
    held.items = items;
    CHECK(!is_same());
  }
  held.items = kept;
  first.told.place = 128;
  CHECK(!is_same());
  first.told.place = 64;
  state.items = {{&other, &held}};
  CHECK(!is_same());
  state.items = {{&key, &held}, {&other, &held}};
  CHECK(!is_same());
  state.items = {{&key, &number}};
  CHECK(!is_same());
  state.items = {{&key, &held}};
  CHECK(is_same());
  state.items = {{&key, &number}};
  CHECK_EQ(paceline_optim_see_state(&reader, &state, seen.data(), 6, &count), PACELINE_ESYSTEM);
  state.items = {{&key, &held}};
  CHECK_EQ(paceline_optim_see_state(&reader, &state, seen.data(), 4, &count), PACELINE_ESYSTEM);
  first.told.layout = kStrided + 1;
  CHECK_EQ(paceline_optim_see_state(&reader, &state, seen.data(), 6, &count), PACELINE_ESYSTEM);
  CHECK_EQ(paceline_optim_see_state(&reader, nullptr, seen.data(), 6, &count), PACELINE_EINVAL);
  CHECK_EQ(paceline_optim_state_is_as_seen(&reader, &state, nullptr, 5), PACELINE_EINVAL);
}

CASE(a_list_is_known_by_its_objects) {
  const paceline_optim_reader reader = known_reader();
  std::array<Tensor, 3> tensors;
  const std::array<void*, 2> objects{tensors.data(), &tensors[1]};
  List list;
  const auto is_same = [&](void* object) {
    return paceline_optim_list_is(&reader, object, objects.data(), objects.size());
  };
  list.items = {tensors.data(), &tensors[1]};
  CHECK_EQ(is_same(&list), 1);
  for (const auto& items : {std::vector<Object*>{},
                            {&tensors[0]},
                            {&tensors[1], &tensors[0]},
                            {&tensors[0], &tensors[1], &tensors[2]}}) {
    list.items = items;
    CHECK_EQ(is_same(&list), 0);
  }
  CHECK_EQ(is_same(tensors.data()), 0);
  CHECK_EQ(is_same(nullptr), PACELINE_EINVAL);
}

CASE(gradients_are_found_where_all_lie_as_they_did) {
  const paceline_optim_reader reader = known_reader();
  std::array<Tensor, 2> leaves;
  std::array<Told, 2> grads;
  std::array<void*, 2> objects{};
  for (std::size_t i = 0; i < 2; ++i) {
    objects[i] = &leaves[i];
    leaves[i].told.grad = &grads[i];
  }
  grads[1].place = 4096;
  std::array<paceline_optim_seen, 2> seen{};
  CHECK_EQ(paceline_optim_see(&reader, objects.data(), 2, seen.data()), PACELINE_OK);
  std::array<std::uint64_t, 2> places{};
  const auto find = [&](const paceline_optim_reader& by) {
    return paceline_optim_gradients(&by, objects.data(), 2, seen.data(), places.data());
  };
  CHECK_EQ(find(reader), 1);
  CHECK((places == std::array<std::uint64_t, 2>{64, 4096}));
  CHECK_EQ(find(without_inner()), PACELINE_ESYSTEM);
  std::array<Told, 5> others;
  others[0].is_negative = true;
  others[1].strides = {1, 6};
  others[2].dtype = 5;
  others[3].place = 0;
  others[4].layout = kStrided + 1;
  for (Told& other : others) {
    leaves[1].told.grad = &other;
    CHECK_EQ(find(reader), 0);
  }
  leaves[1].told.grad = nullptr;
  CHECK_EQ(find(reader), 0);
  CHECK_EQ(paceline_optim_gradients(&reader, objects.data(), 2, nullptr, places.data()),
           PACELINE_EINVAL);
}

CASE(a_gradient_without_memory_is_found_only_where_it_has_no_elements) {
  paceline_optim_reader reader = known_reader();
  // of a wrapper, which PyTorch may let have none
  reader.get_data_ptr = [](void* tensor, void** out) {
    *out = reinterpret_cast<void*>(of(tensor).place);
    return 0;
  };
  Tensor leaf;
  Told grad;
  leaf.told.grad = &grad;
  void* object = &leaf;
  paceline_optim_seen seen{};
  std::uint64_t place = 1;
  CHECK_EQ(paceline_optim_see(&reader, &object, 1, &seen), PACELINE_OK);
  grad.place = 0;
  CHECK_EQ(paceline_optim_gradients(&reader, &object, 1, &seen, &place), 0);
  leaf.told.place = 0;  // as of one without elements
  CHECK_EQ(paceline_optim_see(&reader, &object, 1, &seen), PACELINE_OK);
  CHECK_EQ(paceline_optim_gradients(&reader, &object, 1, &seen, &place), 1);
  CHECK_EQ(place, 0U);
}

CASE(versions_are_told_and_counted_where_that_is_known) {
  const paceline_optim_reader reader = known_reader(), other = without_inner();
  std::array<Tensor, 2> tensors;
  tensors[1].told.version = 7;
  std::array<void*, 2> objects{tensors.data(), &tensors[1]};
  std::array<std::int64_t, 2> versions{};
  CHECK_EQ(paceline_optim_mark_written(&reader, objects.data(), 2), PACELINE_OK);
  CHECK_EQ(paceline_optim_versions(&reader, objects.data(), 2, versions.data()), PACELINE_OK);
  CHECK((versions == std::array<std::int64_t, 2>{1, 8}));
  CHECK_EQ(paceline_optim_versions_are(&reader, objects.data(), 2, versions.data()), 1);
  ++tensors[1].told.version;
  CHECK_EQ(paceline_optim_versions_are(&reader, objects.data(), 2, versions.data()), 0);
  CHECK_EQ(paceline_optim_versions_are(&other, objects.data(), 2, versions.data()),
           PACELINE_ESYSTEM);
  CHECK_EQ(paceline_optim_mark_written(&other, objects.data(), 2), PACELINE_ESYSTEM);
  CHECK_EQ(paceline_optim_versions(&other, objects.data(), 2, versions.data()), PACELINE_ESYSTEM);
  CHECK_EQ(paceline_optim_mark_written(&reader, nullptr, 2), PACELINE_EINVAL);
  CHECK_EQ(paceline_optim_versions(&reader, objects.data(), 2, nullptr), PACELINE_EINVAL);
}

CASE(what_counts_no_versions_is_not_asked_for_them) {
  const paceline_optim_reader reader = known_reader();
  Tensor tensor;
  void* object = &tensor;
  std::int64_t version = 0;
  CHECK_EQ(paceline_optim_versions(&reader, &object, 1, &version), PACELINE_OK);
  tensor.told.is_inference = true;  // PyTorch would throw
  CHECK_EQ(paceline_optim_versions(&reader, &object, 1, &version), PACELINE_ESYSTEM);
  CHECK_EQ(paceline_optim_versions_are(&reader, &object, 1, &version), 0);
  CHECK_EQ(paceline_optim_mark_written(&reader, &object, 1), PACELINE_ESYSTEM);
  CHECK_EQ(tensor.told.version, 0);
}
