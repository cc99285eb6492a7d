// SPDX-License-Identifier: Apache-2.0
// Tensors and their state for tests of GPU steps (device_test.cpp, device_driver_test.cpp): one
// side of a comparison on the processor, the other on the fake driver.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "check.hpp"
#include "fake_cuda/fake.hpp"
#include "step.hpp"

namespace device_cases {

using namespace paceline::optim;
using paceline::device_test::FakeCuda;

// Memory at a chosen distance from an address that is good for anything.
class Array {
 public:
  Array() = default;
  Array(std::size_t bytes, std::size_t shift) : held_(bytes + 64 + shift), shift_(shift) {}

  [[nodiscard]] void* data() {
    const auto at = reinterpret_cast<std::uintptr_t>(held_.data());
    return held_.data() + (64 - at % 64) + shift_;
  }
  [[nodiscard]] float* floats() { return static_cast<float*>(data()); }
  [[nodiscard]] std::size_t size() const { return held_.empty() ? 0 : held_.size() - 64 - shift_; }
  [[nodiscard]] bool same(Array& other) {
    return size() == other.size() &&
           (size() == 0 || std::memcmp(data(), other.data(), size()) == 0);
  }
  Array(const Array& other) : Array(other.size(), other.shift_) {
    if (size() > 0) std::memcpy(data(), const_cast<Array&>(other).data(), size());
  }
  Array& operator=(const Array& other) {
    Array copy(other);
    std::swap(held_, copy.held_);
    std::swap(shift_, copy.shift_);
    return *this;
  }

 private:
  std::vector<std::byte> held_;
  std::size_t shift_ = 0;
};

struct Spec {
  std::int64_t count;
  std::uint8_t param = PACELINE_OPTIM_F32;
  std::uint8_t grad = PACELINE_OPTIM_F32;
  bool master = false;
  std::size_t shift = 0;  // elements away from a good address
  std::uint32_t group = 0;
  bool state_as_param = false;
};

// Tensors with their state, as one side of a comparison owns them.
struct World {
  struct One {
    Spec spec;
    Array param, grad, state1, state2, state3, master;
    float step = 0;
    bool with_grad = true;
  };
  std::vector<One> all;
  std::vector<paceline_optim_group> groups;

  explicit World(const std::vector<Spec>& specs) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (const Spec& spec : specs) {
      const auto count = static_cast<std::size_t>(spec.count);
      const auto array = [&](std::uint8_t dtype) {
        const std::size_t width = dtype == PACELINE_OPTIM_F32 ? 4 : 2;
        return Array(count * width, spec.shift * width);
      };
      std::uint8_t of_state = PACELINE_OPTIM_F32;
      if (spec.state_as_param) of_state = spec.param;
      One one{spec,
              array(spec.param),
              array(spec.grad),
              array(of_state),
              array(of_state),
              array(of_state),
              array(PACELINE_OPTIM_F32)};
      for (std::size_t i = 0; i < count; ++i) one.master.floats()[i] = normal(random);
      write(one.param, spec.param, one.master.floats(), count);
      all.push_back(std::move(one));
    }
    for (std::size_t i = 0; i < count_of_groups(specs); ++i) groups.push_back({});
  }

  static std::size_t count_of_groups(const std::vector<Spec>& specs) {
    std::uint32_t most = 0;
    for (const Spec& spec : specs) most = std::max(most, spec.group);
    return most + 1;
  }

  static void write(Array& to, std::uint8_t dtype, const float* values, std::size_t count) {
    const auto number = static_cast<std::int64_t>(count);
    auto* halves = static_cast<std::uint16_t*>(to.data());
    if (dtype == PACELINE_OPTIM_F32 && count > 0)
      std::memcpy(to.data(), values, count * sizeof(float));
    if (dtype == PACELINE_OPTIM_BF16) kScalarKernels.halves.to_bf16(values, halves, number);
    if (dtype == PACELINE_OPTIM_F16) kScalarKernels.halves.to_f16(values, halves, number);
  }

  void give_gradients(unsigned seed, float scale = 1) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, scale);
    for (One& one : all) {
      std::vector<float> values(static_cast<std::size_t>(one.spec.count));
      for (float& value : values) value = normal(random);
      write(one.grad, one.spec.grad, values.data(), values.size());
    }
  }

  Tensor row(One& one, bool first) {
    Tensor tensor{};
    tensor.param = one.param.data();
    tensor.grad = one.grad.data();
    tensor.state1 = one.state1.floats();
    tensor.state2 = one.state2.floats();
    tensor.state3 = one.state3.floats();
    tensor.master = one.spec.master ? one.master.floats() : nullptr;
    tensor.step = &one.step;
    tensor.count = one.spec.count;
    tensor.param_dtype = one.spec.param;
    tensor.grad_dtype = one.spec.grad;
    tensor.flags =
        static_cast<std::uint16_t>((first ? PACELINE_OPTIM_FIRST : 0U) | (spec_flags(one.spec)));
    tensor.group = one.spec.group;
    return tensor;
  }

  static unsigned spec_flags(const Spec& spec) {
    return spec.state_as_param ? PACELINE_OPTIM_STATE_AS_PARAM : 0U;
  }

  std::vector<Tensor> rows(bool first) {
    std::vector<Tensor> rows;
    for (One& one : all) rows.push_back(row(one, first));
    return rows;
  }

  // Rows with a gradient alone, as the processor's side takes them.
  std::vector<Tensor> given(bool first) {
    std::vector<Tensor> rows;
    for (One& one : all)
      if (one.with_grad) rows.push_back(row(one, first));
    return rows;
  }

  bool same(World& other) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      One& a = all[i];
      One& b = other.all[i];
      if (!a.param.same(b.param) || !a.state1.same(b.state1) || !a.state2.same(b.state2) ||
          !a.state3.same(b.state3) || !a.master.same(b.master) || !a.grad.same(b.grad) ||
          a.step != b.step) {
        std::cerr << "  tensor " << i << " of " << a.spec.count << " elements differs, dtypes "
                  << +a.spec.param << " " << +a.spec.grad << ", kind " << groups[a.spec.group].kind
                  << ", flags " << groups[a.spec.group].flags << "\n";
        return false;
      }
    }
    return true;
  }
};

// The device's side of a comparison: a table for a world, and steps with it.
class Device {
 public:
  explicit Device(World& world, bool first = true) : world_(world), rows_(world.rows(first)) {
    std::uint64_t image_bytes = 0;
    std::uint64_t table_bytes = 0;
    CHECK_EQ(table(nullptr, image_bytes, table_bytes), PACELINE_OK);
    held_.resize(static_cast<std::size_t>(table_bytes) + 256, std::byte{0xa5});
    const auto at = reinterpret_cast<std::uintptr_t>(held_.data());
    table_ = held_.data() + (256 - at % 256);
    CHECK_EQ(table(table_, image_bytes, table_bytes), PACELINE_OK);
    call_.size = sizeof call_;
    call_.tensors = rows_.data();
    call_.tensor_count = rows_.size();
    call_.table = table_;
    call_.table_bytes = table_bytes;
    call_.stream = reinterpret_cast<void*>(0x77);
  }

  paceline_optim_device_call& call() { return call_; }

  int step() {
    std::vector<const void*> grads;
    for (auto& one : world_.all) grads.push_back(one.with_grad ? one.grad.data() : nullptr);
    call_.grads = grads.data();
    call_.groups = world_.groups.data();
    call_.group_count = static_cast<std::uint32_t>(world_.groups.size());
    return paceline_optim_device_step(&call_);
  }

 private:
  int table(void* image, std::uint64_t& image_bytes, std::uint64_t& table_bytes) {
    return paceline_optim_device_table(
        world_.groups.data(), static_cast<std::uint32_t>(world_.groups.size()), rows_.data(),
        rows_.size(), image, &image_bytes, &table_bytes);
  }

  World& world_;
  std::vector<Tensor> rows_;
  std::vector<std::byte> held_;
  std::byte* table_ = nullptr;
  paceline_optim_device_call call_{};
};

inline Group group_of(std::uint32_t kind, std::uint32_t flags, double momentum = 0.9) {
  Group group{};
  group.size = sizeof group;
  group.kind = kind;
  group.flags = flags;
  group.lr = 0.01;
  group.beta1 = 0.9;
  group.beta2 = 0.999;
  group.eps = 1e-8;
  group.weight_decay = 0.05;
  group.momentum = kind == PACELINE_OPTIM_SGD || kind == PACELINE_OPTIM_LARS ? momentum : 0;
  group.dampening = 0.25;
  group.trust_coefficient = 0.001;
  group.grad_multiplier = 1;
  return group;
}

inline std::vector<Group> variants() {
  return {group_of(PACELINE_OPTIM_ADAM, PACELINE_OPTIM_DECOUPLED),
          group_of(PACELINE_OPTIM_ADAM, 0),
          group_of(PACELINE_OPTIM_ADAM, PACELINE_OPTIM_DECOUPLED | PACELINE_OPTIM_AMSGRAD),
          group_of(PACELINE_OPTIM_ADAM, PACELINE_OPTIM_AMSGRAD | PACELINE_OPTIM_MAXIMIZE),
          group_of(PACELINE_OPTIM_SGD, 0),
          group_of(PACELINE_OPTIM_SGD, 0, 0.0),
          group_of(PACELINE_OPTIM_SGD, PACELINE_OPTIM_NESTEROV | PACELINE_OPTIM_MAXIMIZE),
          group_of(PACELINE_OPTIM_LAMB, PACELINE_OPTIM_ADAPT),
          group_of(PACELINE_OPTIM_LAMB, PACELINE_OPTIM_MAXIMIZE),
          group_of(PACELINE_OPTIM_LARS, PACELINE_OPTIM_ADAPT),
          group_of(PACELINE_OPTIM_LARS, PACELINE_OPTIM_ADAPT | PACELINE_OPTIM_NESTEROV),
          group_of(PACELINE_OPTIM_LARS, 0, 0.0)};
}

// One for each way through the kernels, where the formulas are not the question.
inline std::vector<Group> one_of_each() {
  return {group_of(PACELINE_OPTIM_ADAM, PACELINE_OPTIM_DECOUPLED),
          group_of(PACELINE_OPTIM_SGD, PACELINE_OPTIM_MAXIMIZE),
          group_of(PACELINE_OPTIM_LAMB, PACELINE_OPTIM_ADAPT),
          group_of(PACELINE_OPTIM_LARS, PACELINE_OPTIM_ADAPT)};
}

// Around every boundary there is (4 elements, a span, a chunk), on good and on bad addresses, in
// every dtype.
inline std::vector<Spec> every_kind_of_tensor() {
  constexpr std::uint8_t kF32 = PACELINE_OPTIM_F32;
  constexpr std::uint8_t kBf16 = PACELINE_OPTIM_BF16;
  constexpr std::uint8_t kF16 = PACELINE_OPTIM_F16;
  return {{1},
          {0},
          {3},
          {kSpan + 5},
          {kChunk},
          {kChunk + 1},
          {2 * kChunk + 4 * kSpan + 2},
          {kSpan - 1, kF32, kF32, false, 1},
          {kChunk + 6, kF32, kF32, false, 2},
          {1027, kBf16, kBf16, true},
          {1027, kBf16, kF32, true, 3},
          {kChunk + 2, kF16, kF16, true},
          {777, kF16, kF16, true, 1},
          {1030, kBf16, kBf16, false},
          {1031, kF16, kF32, false, 1},
          {514, kF32, kBf16, false},
          {0, kBf16, kBf16, true}};
}

inline int on_processor(World& world, double multiplier, bool first) {
  for (auto& group : world.groups) group.grad_multiplier = multiplier;
  const int status = step(best_kernels(), world.groups, world.given(first), 1);
  for (auto& group : world.groups) group.grad_multiplier = 1;
  return status;
}

inline bool opens(FakeCuda& cuda, int device = 0) {
  const std::string why = cuda.open(device);
  if (!why.empty()) std::cerr << "  " << why << "\n";
  return why.empty();
}

}  // namespace device_cases
