// SPDX-License-Identifier: Apache-2.0
// The optimizers' arithmetic: against fp64, and every instruction set and thread count against each
// other, bit for bit. What needs a framework is in test_optim*.py.
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "base/simd.hpp"
#include "check.hpp"
#include "step.hpp"

namespace {

using namespace paceline::optim;
namespace base = paceline::base;

std::vector<const Kernels*> levels() {
  std::vector<const Kernels*> all{&kScalarKernels};
#if defined(__x86_64__)
  if (base::has_avx2()) all.push_back(&kAvx2Kernels);
  if (base::has_avx512()) all.push_back(&kAvx512Kernels);
#endif
  return all;
}

float float_of(std::uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

std::uint32_t bits_of(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// Several tensors of odd sizes with all their state, as one caller owns them.
struct Model {
  std::vector<std::vector<float>> param, grad, first, second, third;
  std::vector<float> steps;

  explicit Model(const std::vector<std::int64_t>& sizes, unsigned seed = 1) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (const std::int64_t size : sizes) {
      const auto count = static_cast<std::size_t>(size);
      for (auto* set : {&param, &grad, &first, &second, &third}) set->emplace_back(count);
      for (float& value : param.back()) value = normal(random);
      for (float& value : grad.back()) value = normal(random);
      steps.push_back(0);
    }
  }

  std::vector<Tensor> tensors(bool first_step = false) {
    std::vector<Tensor> all;
    for (std::size_t i = 0; i < param.size(); ++i) {
      Tensor tensor{};
      tensor.param = param[i].data();
      tensor.grad = grad[i].data();
      tensor.state1 = first[i].data();
      tensor.state2 = second[i].data();
      tensor.state3 = third[i].data();
      tensor.step = &steps[i];
      tensor.count = static_cast<std::int64_t>(param[i].size());
      tensor.param_dtype = tensor.grad_dtype = PACELINE_OPTIM_F32;
      tensor.flags = first_step ? PACELINE_OPTIM_FIRST : 0;
      all.push_back(tensor);
    }
    return all;
  }

  [[nodiscard]] bool same_bits(const Model& other) const {
    const auto same = [](const auto& a, const auto& b) {
      for (std::size_t i = 0; i < a.size(); ++i)
        if (!a[i].empty() &&
            std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) != 0)
          return false;
      return true;
    };
    return same(param, other.param) && same(first, other.first) && same(second, other.second) &&
           same(third, other.third);
  }
};

Group group_of(std::uint32_t kind, std::uint32_t flags) {
  Group group{};
  group.size = sizeof group;
  group.kind = kind;
  group.flags = flags;
  group.lr = 0.01;
  group.beta1 = 0.9;
  group.beta2 = 0.999;
  group.eps = 1e-8;
  group.weight_decay = 0.05;
  group.momentum = kind == PACELINE_OPTIM_SGD || kind == PACELINE_OPTIM_LARS ? 0.9 : 0;
  group.trust_coefficient = 0.001;
  group.grad_multiplier = 0.5;
  return group;
}

std::vector<Group> variants() {
  std::vector<Group> all;
  for (const std::uint32_t flags :
       {0U, PACELINE_OPTIM_DECOUPLED, PACELINE_OPTIM_DECOUPLED | PACELINE_OPTIM_AMSGRAD,
        PACELINE_OPTIM_AMSGRAD | PACELINE_OPTIM_MAXIMIZE})
    all.push_back(group_of(PACELINE_OPTIM_ADAM, flags));
  for (const std::uint32_t flags : {0U, PACELINE_OPTIM_NESTEROV, PACELINE_OPTIM_MAXIMIZE})
    all.push_back(group_of(PACELINE_OPTIM_SGD, flags));
  all.push_back(group_of(PACELINE_OPTIM_SGD, 0));
  all.back().momentum = 0;
  for (const std::uint32_t flags :
       {0U, PACELINE_OPTIM_ADAPT, PACELINE_OPTIM_ADAPT | PACELINE_OPTIM_MAXIMIZE})
    all.push_back(group_of(PACELINE_OPTIM_LAMB, flags));
  for (const std::uint32_t flags :
       {0U, PACELINE_OPTIM_ADAPT, PACELINE_OPTIM_ADAPT | PACELINE_OPTIM_NESTEROV})
    all.push_back(group_of(PACELINE_OPTIM_LARS, flags));
  return all;
}

// Around every boundary there is: lanes, tiles, chunks.
const std::vector<std::int64_t> kSizes{
    1, 0, 15, 17, kTile - 1, kTile + 1, 16 * kTile, 16 * kTile + 3, 40 * kTile + 5};

CASE(optim_every_instruction_set_computes_the_same_bits) {
  const Model fresh(kSizes);
  for (const Group& group : variants()) {
    Model reference = fresh;
    for (int i = 0; i < 3; ++i)
      CHECK_EQ(step(kScalarKernels, {&group, 1}, reference.tensors(i == 0), 1), PACELINE_OK);
    for (const Kernels* kernels : levels()) {
      Model model = fresh;
      for (int i = 0; i < 3; ++i)
        CHECK_EQ(step(*kernels, {&group, 1}, model.tensors(i == 0), 1), PACELINE_OK);
      CHECK(model.same_bits(reference));
    }
  }
}

CASE(optim_the_number_of_threads_changes_no_bit) {
  const std::vector<std::int64_t> sizes{300'001, 3, 300'000};
  const Model fresh(sizes);
  for (const Group& group : variants()) {
    Model one = fresh;
    Model many = fresh;
    for (int i = 0; i < 2; ++i) {
      CHECK_EQ(step(best_kernels(), {&group, 1}, one.tensors(i == 0), 1), PACELINE_OK);
      CHECK_EQ(step(best_kernels(), {&group, 1}, many.tensors(i == 0), 7), PACELINE_OK);
    }
    CHECK(many.same_bits(one));
    double norms[2] = {0, 1};
    CHECK_EQ(gradient_norm(best_kernels(), one.tensors(), 1, &norms[0]), PACELINE_OK);
    CHECK_EQ(gradient_norm(best_kernels(), one.tensors(), 7, &norms[1]), PACELINE_OK);
    CHECK_EQ(norms[0], norms[1]);
  }
}

// AdamW, LAMB and LARS written out in fp64, one element and one layer at a time.
void reference_step(const Group& group, int number, std::vector<double>& p,
                    const std::vector<float>& g, std::vector<double>& m, std::vector<double>& v) {
  const double bias1 = 1 - std::pow(group.beta1, number);
  const double bias2 = 1 - std::pow(group.beta2, number);
  std::vector<double> update(p.size());
  double param_squares = 0;
  double other_squares = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double gradient = g[i] * group.grad_multiplier;
    param_squares += p[i] * p[i];
    if (group.kind == PACELINE_OPTIM_LARS) {
      other_squares += gradient * gradient;
      continue;
    }
    m[i] = group.beta1 * m[i] + (1 - group.beta1) * gradient;
    v[i] = group.beta2 * v[i] + (1 - group.beta2) * gradient * gradient;
    update[i] = m[i] / bias1 / (std::sqrt(v[i] / bias2) + group.eps) + group.weight_decay * p[i];
    other_squares += update[i] * update[i];
  }
  const double param_norm = std::sqrt(param_squares);
  const double other_norm = std::sqrt(other_squares);
  const bool adapts = (group.flags & PACELINE_OPTIM_ADAPT) != 0 && param_norm > 0 && other_norm > 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (group.kind == PACELINE_OPTIM_LARS) {
      const double local = adapts ? group.trust_coefficient * param_norm /
                                        (other_norm + group.weight_decay * param_norm + group.eps)
                                  : 1;
      const double entering = (g[i] * group.grad_multiplier + group.weight_decay * p[i]) * local;
      m[i] = number == 1 ? entering : m[i] * group.momentum + entering;
      p[i] -= group.lr * m[i];
    } else {
      p[i] -= group.lr * (adapts ? param_norm / other_norm : 1) * update[i];
    }
  }
}

CASE(optim_follows_fp64_over_many_steps) {
  for (Group group : {group_of(PACELINE_OPTIM_ADAM, PACELINE_OPTIM_DECOUPLED),
                      group_of(PACELINE_OPTIM_LAMB, PACELINE_OPTIM_ADAPT),
                      group_of(PACELINE_OPTIM_LARS, PACELINE_OPTIM_ADAPT)}) {
    group.lr = group.kind == PACELINE_OPTIM_LARS ? 1.0 : 1e-3;
    Model model({9 * kTile + 3});
    std::vector<double> p(model.param[0].begin(), model.param[0].end());
    std::vector<double> m(p.size());
    std::vector<double> v(p.size());
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    for (int number = 1; number <= 120; ++number) {
      for (float& value : model.grad[0]) value = normal(random);
      CHECK_EQ(step(best_kernels(), {&group, 1}, model.tensors(number == 1), 2), PACELINE_OK);
      reference_step(group, number, p, model.grad[0], m, v);
    }
    CHECK_EQ(model.steps[0], group.kind == PACELINE_OPTIM_LARS ? 0.0F : 120.0F);
    double worst = 0;
    for (std::size_t i = 0; i < p.size(); ++i)
      worst = std::max(worst, std::abs(model.param[0][i] - p[i]));
    if (!CHECK(worst < 2e-5)) std::cerr << "  kind " << group.kind << ", worst " << worst << "\n";
  }
}

CASE(optim_sixteen_bit_conversions_are_exact_and_round_to_even) {
  std::vector<std::uint16_t> halves(65536);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  std::vector<float> expected(halves.size());
  for (std::size_t i = 0; i < halves.size(); ++i) {
    const int exponent = static_cast<int>(i >> 10) & 31;
    const auto mantissa = static_cast<float>(i & 1023);
    const float magnitude =
        exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(mantissa + 1024, exponent - 25);
    const float value = exponent == 31 ? ((i & 1023) != 0 ? std::nanf("") : HUGE_VALF) : magnitude;
    expected[i] = (i & 0x8000) != 0 ? -value : value;
  }
  std::mt19937 random(3);
  std::vector<float> floats;
  for (std::size_t i = 0; i + 1 < halves.size(); ++i) {
    if (std::isnan(expected[i]) || std::isnan(expected[i + 1]) || std::isinf(expected[i + 1]))
      continue;
    floats.push_back((expected[i] + expected[i + 1]) / 2);  // a tie between two neighbours
  }
  for (const float value :
       {65519.9F, 65520.0F, -65520.0F, 1e30F, 0.0F, -0.0F, 1e-40F, HUGE_VALF, std::nanf("")})
    floats.push_back(value);
  for (int i = 0; i < 200'000; ++i)
    floats.push_back(float_of(static_cast<std::uint32_t>(random())));
  for (const Kernels* kernels : levels()) {
    std::vector<float> out(halves.size());
    kernels->halves.from_f16(halves.data(), out.data(), static_cast<std::int64_t>(halves.size()));
    int wrong = 0;
    for (std::size_t i = 0; i < out.size(); ++i)
      wrong +=
          std::isnan(expected[i]) ? !std::isnan(out[i]) : bits_of(out[i]) != bits_of(expected[i]);
    CHECK_EQ(wrong, 0);
    std::vector<std::uint16_t> back(halves.size());
    kernels->halves.to_f16(out.data(), back.data(), static_cast<std::int64_t>(out.size()));
    for (std::size_t i = 0; i < back.size(); ++i)
      wrong += !std::isnan(expected[i]) && back[i] != halves[i];
    CHECK_EQ(wrong, 0);
    std::vector<std::uint16_t> rounded(floats.size());
    std::vector<std::uint16_t> by_scalar(floats.size());
    const auto count = static_cast<std::int64_t>(floats.size());
    kernels->halves.to_f16(floats.data(), rounded.data(), count);
    kScalarKernels.halves.to_f16(floats.data(), by_scalar.data(), count);
    CHECK(rounded == by_scalar);
    for (std::size_t i = 0; i < floats.size(); ++i) {
      if (std::isnan(floats[i]) || std::abs(floats[i]) >= 65520.0F) continue;
      // No other half is nearer; of two as near, the even one.
      const double distance = std::abs(static_cast<double>(expected[rounded[i]]) - floats[i]);
      for (const int step : {-1, 1}) {
        const auto other = static_cast<std::uint16_t>(rounded[i] + step);
        if (std::isnan(expected[other]) || std::isinf(expected[other])) continue;
        const double theirs = std::abs(static_cast<double>(expected[other]) - floats[i]);
        wrong +=
            theirs < distance || (theirs == distance && expected[other] != expected[rounded[i]] &&
                                  (rounded[i] & 1) != 0);
      }
    }
    CHECK_EQ(wrong, 0);
    kernels->halves.to_bf16(floats.data(), rounded.data(), count);
    std::vector<float> widened(floats.size());
    kernels->halves.from_bf16(rounded.data(), widened.data(), count);
    for (std::size_t i = 0; i < floats.size(); ++i) {
      if (std::isnan(floats[i])) {
        wrong += !std::isnan(widened[i]);
        continue;
      }
      const std::uint32_t low = bits_of(floats[i]) & 0xffffU;
      const std::uint32_t high = bits_of(floats[i]) >> 16;
      wrong +=
          rounded[i] != high + (low > 0x8000U || (low == 0x8000U && (high & 1U) != 0) ? 1U : 0U);
    }
    CHECK_EQ(wrong, 0);
  }
}

CASE(optim_a_sixteen_bit_parameter_is_the_rounding_of_its_master) {
  const Group group = group_of(PACELINE_OPTIM_ADAM, PACELINE_OPTIM_DECOUPLED);
  const std::int64_t size = 5 * kTile + 7;
  for (const std::uint8_t dtype : {PACELINE_OPTIM_BF16, PACELINE_OPTIM_F16}) {
    Model model({size});
    Model plain({size});
    std::vector<std::uint16_t> param(static_cast<std::size_t>(size));
    std::vector<std::uint16_t> grad(param.size());
    const auto narrow =
        dtype == PACELINE_OPTIM_BF16 ? kScalarKernels.halves.to_bf16 : kScalarKernels.halves.to_f16;
    const auto widen = dtype == PACELINE_OPTIM_BF16 ? kScalarKernels.halves.from_bf16
                                                    : kScalarKernels.halves.from_f16;
    narrow(model.grad[0].data(), grad.data(), size);
    widen(grad.data(), plain.grad[0].data(), size);
    std::vector<Tensor> tensors = model.tensors();
    tensors[0].master = model.param[0].data();
    tensors[0].param = param.data();
    tensors[0].grad = grad.data();
    tensors[0].param_dtype = tensors[0].grad_dtype = dtype;
    for (int i = 0; i < 3; ++i) {
      CHECK_EQ(step(best_kernels(), {&group, 1}, tensors, 1), PACELINE_OK);
      CHECK_EQ(step(best_kernels(), {&group, 1}, plain.tensors(), 1), PACELINE_OK);
    }
    CHECK(model.param == plain.param && model.first == plain.first && model.second == plain.second);
    std::vector<std::uint16_t> rounded(param.size());
    narrow(model.param[0].data(), rounded.data(), size);
    CHECK(rounded == param);
    // Without a master the rounded parameter is all that is kept from step to step.
    tensors[0].master = nullptr;
    CHECK_EQ(step(best_kernels(), {&group, 1}, tensors, 1), PACELINE_OK);
    CHECK(model.param == plain.param && param != rounded);
  }
}

CASE(optim_the_norm_tells_what_is_not_finite) {
  Model model({40'000, 3});
  double norm = 0;
  double expected = 0;
  for (const auto& grad : model.grad)
    for (const float value : grad) expected += static_cast<double>(value) * value;
  CHECK_EQ(gradient_norm(best_kernels(), model.tensors(), 2, &norm), PACELINE_OK);
  CHECK(std::abs(norm / std::sqrt(expected) - 1) < 1e-12);
  model.grad[1][2] = std::numeric_limits<float>::max();  // its square is beyond fp32
  CHECK_EQ(gradient_norm(best_kernels(), model.tensors(), 2, &norm), PACELINE_OK);
  CHECK(std::isfinite(norm));
  for (const float value : {HUGE_VALF, std::nanf("")}) {
    model.grad[1][2] = value;
    CHECK_EQ(gradient_norm(best_kernels(), model.tensors(), 2, &norm), PACELINE_OK);
    CHECK(!std::isfinite(norm));
  }
}

CASE(optim_bad_arguments_are_refused_before_anything_is_written) {
  const Group good = group_of(PACELINE_OPTIM_ADAM, PACELINE_OPTIM_AMSGRAD);
  const Model untouched({5, 6});
  const auto refused = [&](auto&& spoil) {
    Model model({5, 6});
    Group group = good;
    std::vector<Tensor> tensors = model.tensors();
    spoil(group, tensors[1]);
    CHECK_EQ(step(best_kernels(), {&group, 1}, tensors, 1), PACELINE_EINVAL);
    CHECK(model.same_bits(untouched) && model.steps[0] == 0);
  };
  refused([](Group& group, Tensor&) { group.kind = 9; });
  refused([](Group& group, Tensor&) { group.size = 80; });
  refused([](Group&, Tensor& tensor) { tensor.param = nullptr; });
  refused([](Group&, Tensor& tensor) { tensor.grad = nullptr; });
  refused([](Group&, Tensor& tensor) { tensor.state2 = nullptr; });
  refused([](Group&, Tensor& tensor) { tensor.state3 = nullptr; });
  refused([](Group&, Tensor& tensor) { tensor.step = nullptr; });
  refused([](Group&, Tensor& tensor) { tensor.master = tensor.state1; });
  refused([](Group&, Tensor& tensor) { tensor.count = -1; });
  refused([](Group&, Tensor& tensor) { tensor.param_dtype = 0; });
  refused([](Group&, Tensor& tensor) { tensor.grad_dtype = 4; });
  refused([](Group&, Tensor& tensor) { tensor.group = 1; });
  Model model({5});
  CHECK_EQ(step(best_kernels(), {&good, 1}, model.tensors(), 0), PACELINE_EINVAL);
  CHECK_EQ(gradient_norm(best_kernels(), model.tensors(), 1, nullptr), PACELINE_EINVAL);
  CHECK_EQ(step(best_kernels(), {}, {}, 1), PACELINE_OK);
}

CASE(optim_a_lesser_instruction_set_can_be_named) {
  ::setenv("PACELINE_SIMD", "scalar", 1);
  CHECK(std::strcmp(best_kernels().name, "scalar") == 0);
}

}  // namespace
