// SPDX-License-Identifier: Apache-2.0
// Layouts of tensors, as a framework that this file plays tells them (layouts.h).
#include "paceline/layouts.h"

#include <array>
#include <cstdint>
#include <vector>

#include "check.hpp"

namespace {

// DLPack's structs, written down a second time: byte by byte they are what a framework fills in.
struct Told {
  void* data;
  std::int32_t device_type, device_id, dimensions;
  std::uint8_t code, bits;
  std::uint16_t lanes;
  const std::int64_t *sizes, *strides;
  std::uint64_t offset;
};

struct Object {
  Told told;
  std::vector<std::int64_t> sizes, strides;
  bool raises = false;
};

int tell(void* object, Told* told) {
  auto* const one = static_cast<Object*>(object);
  if (one->raises) return -1;
  *told = one->told;
  told->dimensions = static_cast<std::int32_t>(one->sizes.size());
  told->sizes = one->sizes.data();
  told->strides = one->strides.data();
  return 0;
}

struct Table {
  std::uint32_t major = 1, minor = 3;
  std::array<void*, 4> others{};
  int (*read)(void*, Told*) = &tell;
  void* stream = nullptr;
};

struct World {
  std::array<float, 12> memory{};
  Object matrix{{memory.data(), 1, 0, 0, 2, 32, 1, nullptr, nullptr, 8}, {3, 2}, {2, 1}};
  Object column{{memory.data(), 1, 0, 0, 2, 32, 1, nullptr, nullptr, 0}, {4, 1}, {1, 1}};
  Object empty{{nullptr, 1, 0, 0, 2, 32, 1, nullptr, nullptr, 0}, {0, 5}, {5, 1}};
  Object scalar{{memory.data() + 11, 1, 0, 0, 2, 32, 1, nullptr, nullptr, 0}, {}, {}};
  std::array<void*, 4> objects{&matrix, &column, &empty, &scalar};
  std::array<std::int64_t, 4 * PACELINE_LAYOUT_WORDS + 12> words{};
  std::array<std::uint64_t, 4> addresses{};
  Table table;

  int read(std::uint64_t capacity) {
    return paceline_layouts_read(&table, objects.data(), objects.size(), words.data(), capacity);
  }
  int same() {
    return paceline_layouts_same(&table, objects.data(), objects.size(), words.data(), nullptr);
  }
  int anywhere() {
    return paceline_layouts_same(&table, objects.data(), objects.size(), words.data(),
                                 addresses.data());
  }
};

}  // namespace

CASE(layouts_are_compared_whole) {
  World world;
  CHECK_EQ(world.read(world.words.size()), 0);
  CHECK_EQ(world.same(), 1);
  const World before = world;
  const auto changed = [&](auto change, int elsewhere) {
    change(world);
    CHECK_EQ(world.same(), 0);
    CHECK_EQ(world.anywhere(), elsewhere);
    world.matrix = before.matrix;
    world.column = before.column;
    world.scalar = before.scalar;
    CHECK_EQ(world.same(), 1);
  };
  changed([](World& w) { w.matrix.told.offset = 4; }, 1);
  changed([](World& w) { w.scalar.told.data = w.memory.data(); }, 1);
  changed([](World& w) { w.matrix.told.code = 0; }, 0);
  changed([](World& w) { w.matrix.told.bits = 16; }, 0);
  changed([](World& w) { w.matrix.told.lanes = 2; }, 0);
  changed([](World& w) { w.matrix.told.device_id = 1; }, 0);
  changed([](World& w) { w.matrix.told.device_type = 2; }, 0);
  changed([](World& w) { w.matrix.sizes = {2, 3}; }, 0);
  changed([](World& w) { w.matrix.strides = {1, 3}; }, 0);
  changed([](World& w) { w.matrix.sizes = w.matrix.strides = {6}; }, 0);
  changed([](World& w) { w.scalar.told.data = nullptr; }, 0);
  world.column.strides = {1, 4};  // of one element: nothing is stepped along
  CHECK_EQ(world.same(), 1);
}

CASE(layouts_tell_where_tensors_begin) {
  World world;
  CHECK_EQ(world.read(world.words.size()), 0);
  CHECK_EQ(world.anywhere(), 1);
  const auto place = [](const void* at) {
    return static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(at));
  };
  CHECK_EQ(world.addresses[0], place(world.memory.data() + 2));
  CHECK_EQ(world.addresses[1], place(world.memory.data()));
  CHECK_EQ(world.addresses[2], std::uint64_t{0});
  CHECK_EQ(world.addresses[3], place(world.memory.data() + 11));
}

CASE(layouts_that_cannot_be_had_are_refused) {
  World world;
  CHECK_EQ(world.read(world.words.size() - 1), PACELINE_EINVAL);
  CHECK_EQ(world.read(world.words.size()), 0);
  world.column.raises = true;
  CHECK_EQ(world.read(world.words.size()), PACELINE_ESYSTEM);
  CHECK_EQ(world.same(), PACELINE_ESYSTEM);
  world.column.raises = false;
  for (const Table& table : {Table{.major = 2}, Table{.minor = 2}, Table{.read = nullptr}}) {
    world.table = table;
    CHECK_EQ(world.read(world.words.size()), PACELINE_EINVAL);
    CHECK_EQ(world.same(), PACELINE_EINVAL);
  }
  CHECK_EQ(paceline_layouts_same(nullptr, nullptr, 0, nullptr, nullptr), PACELINE_EINVAL);
}
