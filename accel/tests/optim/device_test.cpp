// SPDX-License-Identifier: Apache-2.0
// Whole steps of the optimizers' kernels on the fake driver (fake_cuda/), which runs their source
// as C++, against paceline_optim_step, bit for bit.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "check.hpp"
#include "device_world.hpp"
#include "fake_cuda/fake.hpp"

namespace device_cases {

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

CASE(device_state_of_the_parameters_type_is_the_processors) {
  FakeCuda cuda;
  CHECK(opens(cuda));
  for (const Group& group : variants()) {
    if (group.kind == PACELINE_OPTIM_LAMB || group.kind == PACELINE_OPTIM_LARS) continue;
    std::vector<Spec> specs;
    for (const std::uint8_t dtype : {PACELINE_OPTIM_BF16, PACELINE_OPTIM_F16, PACELINE_OPTIM_F32})
      for (const std::size_t shift : {0, 1})
        specs.push_back({kChunk + 5, dtype, dtype, false, shift, 0, true});
    World ours(specs);
    ours.groups[0] = group;
    World processor = ours;
    Device device(ours);
    for (unsigned number = 0; number < 3; ++number) {
      for (World* world : {&ours, &processor}) world->give_gradients(number + 70);
      CHECK_EQ(device.step(), PACELINE_OK);
      CHECK_EQ(on_processor(processor, 1, number == 0), PACELINE_OK);
      CHECK(ours.same(processor));
    }
    std::vector<Tensor> refused = processor.given(false);
    refused[0].master = processor.all[0].master.floats();
    CHECK_EQ(step(best_kernels(), processor.groups, refused, 1), PACELINE_EINVAL);
  }
  CHECK(!cuda.uneven());
}

// As in a bucket of DistributedDataParallel: everything else lies on good addresses.
CASE(device_a_misaligned_gradient_leaves_all_other_accesses_wide) {
  FakeCuda cuda;
  CHECK(opens(cuda));
  for (const std::uint8_t dtype : {PACELINE_OPTIM_F32, PACELINE_OPTIM_BF16, PACELINE_OPTIM_F16}) {
    constexpr std::int64_t kCount = 2 * kChunk + 7;
    for (std::size_t shift = 0; shift < 4; ++shift) {
      World ours(std::vector<Spec>{{kCount, PACELINE_OPTIM_F32, dtype}});
      ours.groups[0] = group_of(PACELINE_OPTIM_ADAM, PACELINE_OPTIM_DECOUPLED);
      const std::size_t width = dtype == PACELINE_OPTIM_F32 ? 4 : 2;
      ours.all[0].grad = Array(static_cast<std::size_t>(kCount) * width, shift * width);
      World processor = ours;
      Device device(ours);
      double norm = 0;
      device.call().norm_out = &norm;
      for (World* world : {&ours, &processor}) world->give_gradients(9);
      const long before = cuda.wide();
      CHECK_EQ(device.step(), PACELINE_OK);
      // Three arrays are read and written. The norm reads the gradient, and so does the update if
      // it is aligned.
      const long each = 6 + 1 + (shift == 0 ? 1 : 0);
      CHECK(cuda.wide() - before >= each * (kCount / 4 - 1));
      double expected = 0;
      CHECK_EQ(gradient_norm(best_kernels(), processor.given(true), 1, &expected), PACELINE_OK);
      CHECK_EQ(norm, expected);
      CHECK_EQ(on_processor(processor, 1, true), PACELINE_OK);
      CHECK(ours.same(processor));
    }
  }
  CHECK(!cuda.uneven());
}

CASE(device_a_norm_of_more_chunks_than_columns_is_the_processors) {
  FakeCuda cuda;
  CHECK(opens(cuda));
  for (const std::int64_t tensors : {1, 256, 600}) {
    World ours(std::vector<Spec>(static_cast<std::size_t>(tensors), Spec{5}));
    ours.groups[0] = group_of(PACELINE_OPTIM_SGD, 0);
    Device device(ours);
    double norm = 0;
    device.call().norm_out = &norm;
    for (unsigned number = 0; number < 2; ++number) {
      ours.give_gradients(number);
      double expected = 0;
      CHECK_EQ(gradient_norm(best_kernels(), ours.given(false), 1, &expected), PACELINE_OK);
      CHECK_EQ(device.step(), PACELINE_OK);
      CHECK_EQ(norm, expected);
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

}  // namespace device_cases
