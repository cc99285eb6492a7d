// SPDX-License-Identifier: Apache-2.0
// The optimizers' kernels and their host's side without a GPU: whole steps on a fake driver that
// runs the kernels' own source as C++ (device/), against paceline_optim_step, bit for bit; and the
// calls that the driver gets.
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
      One one{spec,
              array(spec.param),
              array(spec.grad),
              array(PACELINE_OPTIM_F32),
              array(PACELINE_OPTIM_F32),
              array(PACELINE_OPTIM_F32),
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
    if (dtype == PACELINE_OPTIM_BF16) kScalarKernels.to_bf16(values, halves, number);
    if (dtype == PACELINE_OPTIM_F16) kScalarKernels.to_f16(values, halves, number);
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
    tensor.flags = first ? PACELINE_OPTIM_FIRST : 0;
    tensor.group = one.spec.group;
    return tensor;
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

Group group_of(std::uint32_t kind, std::uint32_t flags, double momentum = 0.9) {
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

std::vector<Group> variants() {
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
std::vector<Group> one_of_each() {
  return {group_of(PACELINE_OPTIM_ADAM, PACELINE_OPTIM_DECOUPLED),
          group_of(PACELINE_OPTIM_SGD, PACELINE_OPTIM_MAXIMIZE),
          group_of(PACELINE_OPTIM_LAMB, PACELINE_OPTIM_ADAPT),
          group_of(PACELINE_OPTIM_LARS, PACELINE_OPTIM_ADAPT)};
}

// Around every boundary there is (4 elements, a span, a chunk), on good and on bad addresses, in
// every dtype.
std::vector<Spec> every_kind_of_tensor() {
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

int on_processor(World& world, double multiplier, bool first) {
  for (auto& group : world.groups) group.grad_multiplier = multiplier;
  const int status = step(best_kernels(), world.groups, world.given(first), 1);
  for (auto& group : world.groups) group.grad_multiplier = 1;
  return status;
}

bool opens(FakeCuda& cuda, int device = 0) {
  const std::string why = cuda.open(device);
  if (!why.empty()) std::cerr << "  " << why << "\n";
  return why.empty();
}

CASE(device_every_optimizer_computes_the_processors_bits) {
  FakeCuda cuda;
  CHECK(opens(cuda));
  for (const Group& group : variants()) {
    World ours(every_kind_of_tensor());
    ours.groups[0] = group;
    World processor = ours;
    Device device(ours);
    for (unsigned number = 0; number < 2; ++number) {
      ours.give_gradients(number + 20);
      processor.give_gradients(number + 20);
      CHECK_EQ(device.step(), PACELINE_OK);
      CHECK_EQ(on_processor(processor, 1, number == 0), PACELINE_OK);
      CHECK(ours.same(processor));
    }
  }
  CHECK(!cuda.uneven());
}

CASE(device_clipping_and_unscaling_are_the_processors) {
  FakeCuda cuda;
  CHECK(opens(cuda));
  for (const Group& group : one_of_each()) {
    World ours({{kChunk + 1},
                {0},
                {kSpan + 5},
                {3},
                {1030, PACELINE_OPTIM_BF16, PACELINE_OPTIM_BF16, true}});
    ours.groups[0] = group;
    World processor = ours;
    Device device(ours);
    float grad_scale = 1024;
    double norm = -1;
    device.call().grad_scale = &grad_scale;
    device.call().norm_out = &norm;
    for (unsigned number = 0; number < 2; ++number) {
      // Above the limit, far below it.
      device.call().max_grad_norm = number == 1 ? 1e9 : 2;
      ours.give_gradients(number + 50, 1024);
      processor.give_gradients(number + 50, 1024);
      CHECK_EQ(device.step(), PACELINE_OK);
      double expected = 0;
      CHECK_EQ(gradient_norm(best_kernels(), processor.given(false), 1, &expected), PACELINE_OK);
      const double unscale = 1 / static_cast<double>(grad_scale);
      expected *= unscale;
      CHECK_EQ(norm, expected);
      const double factor = std::min(1.0, device.call().max_grad_norm / (expected + 1e-6));
      CHECK_EQ(on_processor(processor, unscale * factor, number == 0), PACELINE_OK);
      CHECK(ours.same(processor));
    }
  }
  CHECK(!cuda.uneven());
}

CASE(device_a_skipped_step_advances_nothing) {
  FakeCuda cuda;
  CHECK(opens(cuda));
  for (const Group& group : one_of_each()) {
    World ours({{9000}, {5}, {700, PACELINE_OPTIM_BF16, PACELINE_OPTIM_BF16, true}});
    ours.groups[0] = group;
    World processor = ours;
    Device device(ours);
    float found_inf = 0;
    float found_by_norm = -1;
    device.call().found_inf = &found_inf;
    device.call().found_inf_out = &found_by_norm;
    device.call().flags = PACELINE_OPTIM_SKIP_NOT_FINITE;
    bool first = true;
    for (unsigned number = 0; number < 6; ++number) {
      ours.give_gradients(number);
      processor.give_gradients(number);
      const bool told = number == 0 || number == 3;
      const bool seen = number == 1 || number == 4;
      found_inf = told ? 1.0F : 0.0F;
      for (World* world : {&ours, &processor})
        if (seen)
          world->all[number == 1 ? 0 : 1].grad.floats()[4] =
              number == 1 ? HUGE_VALF : std::nanf("");
      CHECK_EQ(device.step(), PACELINE_OK);
      CHECK_EQ(found_by_norm, seen ? 1.0F : 0.0F);
      if (!told && !seen) {
        CHECK_EQ(on_processor(processor, 1, first), PACELINE_OK);
        first = false;
      }
      CHECK(ours.same(processor));
    }
  }
}

CASE(device_a_tensor_without_a_gradient_stays_and_counts_its_own_steps) {
  FakeCuda cuda;
  CHECK(opens(cuda));
  for (const Group& group :
       {group_of(PACELINE_OPTIM_ADAM, PACELINE_OPTIM_DECOUPLED),
        group_of(PACELINE_OPTIM_LAMB, PACELINE_OPTIM_ADAPT), group_of(PACELINE_OPTIM_SGD, 0)}) {
    World ours({{9000}, {5}, {700}, {0}});
    ours.groups[0] = group;
    ours.all[2].step = 41;  // as after loading a checkpoint
    World processor = ours;
    Device device(ours);
    bool seen[4] = {};
    for (unsigned number = 0; number < 4; ++number) {
      for (World* world : {&ours, &processor}) {
        world->give_gradients(number + 3);
        for (std::size_t i = 0; i < world->all.size(); ++i)
          world->all[i].with_grad = (number + i) % 3 != 0;
      }
      CHECK_EQ(device.step(), PACELINE_OK);
      for (std::size_t i = 0; i < processor.all.size(); ++i) {
        if (!processor.all[i].with_grad) continue;
        const std::vector<Tensor> alone{processor.row(processor.all[i], !seen[i])};
        CHECK_EQ(step(best_kernels(), processor.groups, alone, 1), PACELINE_OK);
        seen[i] = true;
      }
      CHECK(ours.same(processor));
    }
    const bool counts = group.kind != PACELINE_OPTIM_SGD;
    CHECK_EQ(ours.all[2].step, counts ? 44.0F : 41.0F);
    CHECK_EQ(ours.all[3].step, counts ? 2.0F : 0.0F);
  }
}

CASE(device_many_tensors_and_groups_take_few_launches) {
  FakeCuda cuda;
  CHECK(opens(cuda));
  std::vector<Spec> specs;
  for (std::uint32_t i = 0; i < 900; ++i) {
    Spec spec{i % 40 == 0 ? static_cast<std::int64_t>(i % 7 + 1) : 0};
    spec.group = i / 450 * 9;  // groups 0 and 9: of two windows
    specs.push_back(spec);
  }
  World ours(specs);
  for (std::size_t i = 0; i < ours.groups.size(); ++i) {
    ours.groups[i] = group_of(PACELINE_OPTIM_ADAM, PACELINE_OPTIM_DECOUPLED);
    ours.groups[i].lr *= static_cast<double>(i + 1);
  }
  World processor = ours;
  Device device(ours);
  double norm = 0;
  device.call().max_grad_norm = 1;
  device.call().norm_out = &norm;
  for (unsigned number = 0; number < 2; ++number) {
    ours.give_gradients(number);
    processor.give_gradients(number);
    cuda.forget();
    CHECK_EQ(device.step(), PACELINE_OK);
    double expected = 0;
    CHECK_EQ(gradient_norm(best_kernels(), processor.given(false), 1, &expected), PACELINE_OK);
    CHECK_EQ(norm, expected);
    CHECK_EQ(on_processor(processor, std::min(1.0, 1 / (expected + 1e-6)), false), PACELINE_OK);
    CHECK(ours.same(processor));
    const std::string log = cuda.log();
    // 400 and 50 of each window; the norm, and the update
    CHECK_EQ(std::count(log.begin(), log.end(), '\n'), 8);
  }
}

CASE(device_lr_on_the_device_is_read_there) {
  FakeCuda cuda;
  CHECK(opens(cuda));
  World ours({{300}, {200}});
  ours.all[1].spec.group = 1;
  ours.groups = {group_of(PACELINE_OPTIM_ADAM, 0),
                 group_of(PACELINE_OPTIM_LAMB, PACELINE_OPTIM_ADAPT)};
  World processor = ours;
  Device device(ours);
  float lr = 0.25F;
  const float* rates[2] = {nullptr, &lr};
  device.call().group_lr = rates;
  for (unsigned number = 0; number < 3; ++number) {
    lr /= 2;
    processor.groups[1].lr = static_cast<double>(lr);
    ours.give_gradients(number);
    processor.give_gradients(number);
    CHECK_EQ(device.step(), PACELINE_OK);
    CHECK_EQ(on_processor(processor, 1, false), PACELINE_OK);
    CHECK(ours.same(processor));
  }
}

CASE(device_modules_load_while_another_thread_captures_a_graph) {
  FakeCuda cuda;
  cuda.set("captured elsewhere", 1);
  CHECK(opens(cuda));
  CHECK_EQ(cuda.capture_mode(), 0);
}

CASE(device_calls_go_to_the_callers_stream_and_leave_no_context_behind) {
  FakeCuda cuda(
      {"optim-cuda12-sm_90.cubin", "optim-cuda13-sm_90.cubin", "optim-cuda13-sm_80.cubin"});
  CHECK(opens(cuda, 3) && opens(cuda, 3));
  CHECK(cuda.log() ==
        "cuInit\ncuDeviceGet 3\ncuDevicePrimaryCtxRetain 3\ncuThreadExchangeStreamCaptureMode 2\n"
        "cuModuleLoadData cuda13-s\ncuThreadExchangeStreamCaptureMode 0\n");  // once for a process
  World world(std::vector<Spec>{{8193}});
  world.groups[0] = group_of(PACELINE_OPTIM_SGD, 0);
  Device device(world);
  device.call().device = 3;
  cuda.forget();
  CHECK_EQ(device.step(), PACELINE_OK);
  CHECK(cuda.log() == "cuLaunchKernel paceline_optim_update 2 256 stream 119 contexts 1\n");
  cuda.forget();
  device.call().max_grad_norm = 1;
  CHECK_EQ(device.step(), PACELINE_OK);
  CHECK(cuda.log() ==
        "cuLaunchKernel paceline_optim_norm 2 256 stream 119 contexts 1\n"
        "cuLaunchKernel paceline_optim_update 2 256 stream 119 contexts 1\n");
  cuda.set("cuLaunchKernel", 700);
  CHECK_EQ(device.step(), PACELINE_EDEVICE);
}

CASE(device_an_older_driver_takes_the_older_module) {
  FakeCuda cuda({"optim-cuda12-sm_80.cubin", "optim-cuda13-sm_80.cubin"});
  cuda.set("version", 12080);
  cuda.set("major", 8);
  cuda.set("minor", 6);
  CHECK(opens(cuda));
  CHECK(cuda.log().find("cuModuleLoadData cuda12-s\n") != std::string::npos);
}

CASE(device_without_its_own_module_a_newer_driver_takes_an_older_one) {
  FakeCuda cuda({"optim-cuda12-sm_100.cubin"});
  cuda.set("major", 10);
  cuda.set("minor", 3);
  CHECK(opens(cuda));
}

CASE(device_a_reason_is_given_where_there_is_nothing_for_it) {
  FakeCuda cuda;
  cuda.set("major", 7);
  cuda.set("minor", 5);
  CHECK(cuda.open(0).find("compute capability 7.5") != std::string::npos);
  cuda.set("major", 12);
  CHECK(cuda.open(1).find("compute capability 12.5") != std::string::npos);
  cuda.set("major", 10);
  CHECK(cuda.open(2).find("optim-cuda13-sm_100.cubin, optim-cuda12-sm_100.cubin") !=
        std::string::npos);
  cuda.set("major", 9);
  cuda.set("cuModuleLoadData", 200);
  CHECK(cuda.open(4).find("CUDA_ERROR_INVALID_IMAGE") != std::string::npos);
  cuda.set("cuModuleLoadData", 0);
  CHECK(cuda.open(4).find("CUDA_ERROR_INVALID_IMAGE") != std::string::npos);  // remembered
  CHECK(cuda.open(64).find("64") != std::string::npos);
  World world(std::vector<Spec>{{5}});
  world.groups[0] = group_of(PACELINE_OPTIM_SGD, 0);
  Device device(world);
  CHECK_EQ(device.step(), PACELINE_EDEVICE);
}

CASE(device_what_is_said_of_all_devices_touches_none) {
  FakeCuda cuda;
  const auto everywhere = [&] {
    std::string why(200, '\0');
    const int status =
        paceline_optim_device_everywhere(cuda.folder().c_str(), why.data(), why.size());
    CHECK((status == PACELINE_OK) == (why[0] == '\0'));
    why.resize(why.find('\0'));
    return why;
  };
  CHECK(everywhere().empty());
  CHECK(cuda.log().find("cuDevicePrimaryCtxRetain") == std::string::npos);
  CHECK(cuda.log().find("cuDeviceGet 63") != std::string::npos);
  cuda.forget();
  cuda.set("devices", 2);
  CHECK(everywhere().empty());
  CHECK(cuda.log().find("cuDeviceGet 1") != std::string::npos &&
        cuda.log().find("cuDeviceGet 3") == std::string::npos);
  cuda.set("devices", 0);
  CHECK(everywhere().starts_with("device 0: cuDeviceGet"));
  cuda.set("devices", 1);
  cuda.set("major", 10);
  CHECK(everywhere().find("no module in") != std::string::npos);
  CHECK_EQ(paceline_optim_device_everywhere(nullptr, nullptr, 0), PACELINE_EINVAL);
}

CASE(device_counts_in_the_hosts_memory_go_on_where_there_is_a_gradient) {
  std::array<float, 3> steps{1, 2, 3};
  std::array<float, 3> counts = steps;
  std::array<float*, 3> places{&steps[0], &steps[1], &steps[2]};
  const std::array<const void*, 3> grads{steps.data(), nullptr, steps.data()};
  CHECK_EQ(paceline_optim_counts_are(places.data(), counts.data(), 3), 1);
  CHECK_EQ(paceline_optim_count(places.data(), counts.data(), grads.data(), 3), PACELINE_OK);
  CHECK((steps == std::array<float, 3>{2, 2, 4} && counts == steps));
  steps[2] = 7;
  CHECK_EQ(paceline_optim_counts_are(places.data(), counts.data(), 3), 0);
  CHECK_EQ(paceline_optim_counts_are(places.data(), counts.data(), 2), 1);
  CHECK_EQ(paceline_optim_counts_are(nullptr, nullptr, 0), 1);
  CHECK_EQ(paceline_optim_counts_are(nullptr, counts.data(), 3), PACELINE_EINVAL);
  CHECK_EQ(paceline_optim_count(places.data(), counts.data(), nullptr, 3), PACELINE_EINVAL);
}

CASE(device_a_driver_too_old_is_refused) {
  FakeCuda cuda;
  cuda.set("version", 11080);
  CHECK(cuda.open().find("CUDA 11") != std::string::npos);
}

CASE(device_bad_arguments_are_refused_before_anything_is_launched) {
  FakeCuda cuda;
  CHECK(opens(cuda));
  const auto refused = [&](auto&& spoil) {
    World world({{5}, {6}});
    world.groups[0] = group_of(PACELINE_OPTIM_ADAM, PACELINE_OPTIM_AMSGRAD);
    Device device(world);
    spoil(world, device.call());
    cuda.forget();
    CHECK_EQ(device.step(), PACELINE_EINVAL);
    CHECK(cuda.log().empty());
  };
  refused([](World&, paceline_optim_device_call& call) { call.size = 8; });
  refused([](World&, paceline_optim_device_call& call) { call.device = -1; });
  refused([](World&, paceline_optim_device_call& call) { --call.table_bytes; });
  refused([](World&, paceline_optim_device_call& call) {
    call.table = static_cast<std::byte*>(call.table) + 8;
  });
  refused([](World&, paceline_optim_device_call& call) { call.max_grad_norm = std::nan(""); });
  refused([](World&, paceline_optim_device_call& call) { call.max_grad_norm = -1; });
  refused([](World&, paceline_optim_device_call& call) { call.tensors = nullptr; });
  refused([](World& world, paceline_optim_device_call&) { world.groups[0].kind = 7; });
  refused([](World& world, paceline_optim_device_call&) { world.groups.clear(); });
  CHECK_EQ(paceline_optim_device_step(nullptr), PACELINE_EINVAL);
}

CASE(device_an_empty_table_still_counts_steps_and_has_a_norm_of_0) {
  FakeCuda cuda;
  CHECK(opens(cuda));
  World world({{0}, {0}});
  world.groups[0] = group_of(PACELINE_OPTIM_ADAM, 0);
  Device device(world);
  double norm = -1;
  device.call().norm_out = &norm;
  for (int i = 0; i < 2; ++i) CHECK_EQ(device.step(), PACELINE_OK);
  CHECK_EQ(norm, 0.0);
  CHECK_EQ(world.all[1].step, 2.0F);
}

}  // namespace device_cases
