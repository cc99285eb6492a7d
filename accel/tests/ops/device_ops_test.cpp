// SPDX-License-Identifier: Apache-2.0
// The GPU's kernels of the operators on the fake driver: attention against float64, and FCOS3D's
// targets against the CPU's.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/float16.hpp"
#include "check.hpp"
#include "fake_cuda/fake.hpp"
#include "paceline/ops_device.h"
#include "predictions.hpp"

namespace {

using paceline::check::Predictions;
using paceline::device_test::FakeCuda;
using std::int64_t;
using std::size_t;

const std::vector<std::string> kModules{"attention-cuda12-sm_90.cubin", "fcos3d-cuda12-sm_90.cubin",
                                        "simota-cuda12-sm_90.cubin"};
constexpr int64_t kDim = PACELINE_ATTENTION_HEAD_DIM;

size_t at(int64_t index) { return static_cast<size_t>(index); }

// 16-bit numbers, and what they stand for.
struct Halves {
  std::uint32_t type;
  std::vector<std::uint16_t> bits;

  Halves(std::uint32_t of_type, int64_t count) : type(of_type), bits(at(count)) {}
  void fill(std::mt19937& random, float size) {
    std::normal_distribution<float> normal(0, size);
    for (std::uint16_t& one : bits)
      one = type == PACELINE_ATTENTION_BF16 ? paceline::base::float_to_bf16(normal(random))
                                            : paceline::base::float_to_half(normal(random));
  }
  double operator[](int64_t i) const {
    return type == PACELINE_ATTENTION_BF16 ? paceline::base::bf16_to_float(bits[at(i)])
                                           : paceline::base::half_to_float(bits[at(i)]);
  }
};

struct Shape {
  int64_t windows, masks, tokens, heads;
  std::uint32_t type = PACELINE_ATTENTION_F16;
  bool masked = true;
  int64_t slots = 2;
};

// Packed q, k and v, as the Linear layer of a Swin model makes them, and what is expected of them.
class Attention {
 public:
  explicit Attention(const Shape& shape)
      : shape_(shape),
        entries_(shape.tokens * 2 - 1),
        packed_(shape.type, shape.windows * shape.tokens * 3 * width()),
        packed_grad_(shape.type, shape.windows * shape.tokens * 3 * width()),
        out_(shape.type, shape.windows * shape.tokens * width()),
        out_grad_(shape.type, shape.windows * shape.tokens * width()),
        table_(at(entries_ * shape.heads)),
        table_grad_(table_.size(), std::numeric_limits<float>::quiet_NaN()),
        mask_(at(shape.masks * shape.tokens * shape.tokens)),
        index_(at(shape.tokens * shape.tokens)),
        sums_(at(shape.slots * shape.heads * shape.tokens * shape.tokens)) {
    std::mt19937 random(7);
    packed_.fill(random, 1);
    out_grad_.fill(random, 1);
    std::normal_distribution<float> normal(0, 1);
    for (float& one : table_) one = normal(random);
    for (float& one : mask_) one = random() % 4 == 0 ? -100.0F : 0.0F;
    for (int64_t i = 0; i < shape.tokens; ++i)
      for (int64_t j = 0; j < shape.tokens; ++j)
        index_[at(i * shape.tokens + j)] = i - j + shape.tokens - 1;
  }

  paceline_attention call() {
    const auto third = [&](Halves& all, int64_t part) { return all.bits.data() + part * width(); };
    return {.size = sizeof(paceline_attention),
            .type = shape_.type,
            .windows = shape_.windows,
            .masks = shape_.masked ? shape_.masks : 1,
            .tokens = shape_.tokens,
            .heads = shape_.heads,
            .entries = entries_,
            .window_stride = shape_.tokens * 3 * width(),
            .token_stride = 3 * width(),
            .slots = shape_.slots,
            .q = third(packed_, 0),
            .k = third(packed_, 1),
            .v = third(packed_, 2),
            .table = table_.data(),
            .index = index_.data(),
            .mask = shape_.masked ? mask_.data() : nullptr,
            .out = out_.bits.data(),
            .out_grad = out_grad_.bits.data(),
            .q_grad = third(packed_grad_, 0),
            .k_grad = third(packed_grad_, 1),
            .v_grad = third(packed_grad_, 2),
            .table_grad = table_grad_.data(),
            .sums = sums_.data(),
            .scale = kScale,
            .reserved = 0};
  }

  // Greatest error of a result, as a part of the greatest number expected.
  struct Errors {
    double out = 0, packed_grad = 0, table_grad = 0;
  };

  Errors errors() const {
    std::vector<double> out(out_.bits.size()), grad(packed_.bits.size()), table(table_.size());
    for (int64_t window = 0; window < shape_.windows; ++window)
      for (int64_t head = 0; head < shape_.heads; ++head) expect(window, head, out, grad, table);
    return {error(out_, out), error(packed_grad_, grad), error(table_grad_, table)};
  }

  [[nodiscard]] const std::vector<float>& table_grad() const { return table_grad_; }

 private:
  static constexpr float kScale = 0.17677669F;

  [[nodiscard]] int64_t width() const { return shape_.heads * kDim; }
  [[nodiscard]] int64_t place(int64_t window, int64_t token, int64_t part, int64_t head) const {
    return ((window * shape_.tokens + token) * 3 + part) * width() + head * kDim;
  }

  template <typename Found>
  static double error(const Found& found, const std::vector<double>& expected) {
    double most = 0, wrong = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      most = std::max(most, std::abs(expected[i]));
      const double off = std::abs(static_cast<double>(found[static_cast<int>(i)]) - expected[i]);
      wrong = std::isnan(off) ? std::numeric_limits<double>::infinity() : std::max(wrong, off);
    }
    return wrong / most;
  }

  // Forward and backward of one head of one window, in float64.
  void expect(int64_t window, int64_t head, std::vector<double>& out, std::vector<double>& grad,
              std::vector<double>& table) const {
    const int64_t n = shape_.tokens;
    for (int64_t i = 0; i < n; ++i) {
      std::vector<double> shares(at(n));
      double sum = 0;
      for (int64_t j = 0; j < n; ++j) {
        double score = 0;
        for (int64_t d = 0; d < kDim; ++d)
          score += packed_[place(window, i, 0, head) + d] * packed_[place(window, j, 1, head) + d];
        score = score * kScale + table_[at(index_[at(i * n + j)] * shape_.heads + head)];
        if (shape_.masked) score += mask_[at((window % shape_.masks * n + i) * n + j)];
        sum += shares[at(j)] = std::exp(score);
      }
      for (double& share : shares) share /= sum;
      std::vector<double> share_grads(at(n));
      double dot = 0;
      const int64_t row = (window * n + i) * width() + head * kDim;
      for (int64_t j = 0; j < n; ++j) {
        for (int64_t d = 0; d < kDim; ++d) {
          const int64_t value = place(window, j, 2, head) + d;
          out[at(row + d)] += shares[at(j)] * packed_[value];
          share_grads[at(j)] += out_grad_[row + d] * packed_[value];
          grad[at(value)] += shares[at(j)] * out_grad_[row + d];
        }
        dot += shares[at(j)] * share_grads[at(j)];
      }
      for (int64_t j = 0; j < n; ++j) {
        const double score_grad = shares[at(j)] * (share_grads[at(j)] - dot);
        table[at(index_[at(i * n + j)] * shape_.heads + head)] += score_grad;
        for (int64_t d = 0; d < kDim; ++d) {
          const int64_t query = place(window, i, 0, head) + d;
          const int64_t key = place(window, j, 1, head) + d;
          grad[at(query)] += score_grad * packed_[key] * kScale;
          grad[at(key)] += score_grad * packed_[query] * kScale;
        }
      }
    }
  }

  Shape shape_;
  int64_t entries_;
  Halves packed_, packed_grad_, out_, out_grad_;
  std::vector<float> table_, table_grad_, mask_;
  std::vector<int64_t> index_;
  std::vector<float> sums_;
};

CASE(attention_on_a_gpu_is_that_of_float64) {
  FakeCuda cuda(kModules);
  if (!CHECK(cuda.open_operators() == "")) return;
  for (const Shape& shape : {Shape{4, 2, 49, 2}, Shape{3, 1, 64, 1, PACELINE_ATTENTION_BF16},
                             Shape{2, 1, 16, 3, PACELINE_ATTENTION_F16, false}, Shape{2, 2, 1, 1},
                             Shape{5, 5, 33, 1, PACELINE_ATTENTION_BF16, true, 5}}) {
    Attention attention(shape);
    paceline_attention call = attention.call();
    CHECK_EQ(paceline_attention_forward(&call, 0, nullptr), PACELINE_OK);
    CHECK_EQ(paceline_attention_backward(&call, 0, nullptr), PACELINE_OK);
    const Attention::Errors errors = attention.errors();
    // Half of the last bit of a number of the type, some times over.
    const double last = shape.type == PACELINE_ATTENTION_BF16 ? 1.0 / 256 : 1.0 / 2048;
    CHECK(errors.out < 2 * last);
    CHECK(errors.packed_grad < 3 * last);
    CHECK(shape.tokens == 1 || errors.table_grad < 3 * last);
  }
  CHECK(!cuda.uneven());
}

CASE(attention_on_a_gpu_repeats_itself) {
  FakeCuda cuda(kModules);
  if (!CHECK(cuda.open_operators() == "")) return;
  Attention one({6, 3, 49, 2, PACELINE_ATTENTION_F16, true, 3});
  Attention other({6, 3, 49, 2, PACELINE_ATTENTION_F16, true, 3});
  for (Attention* attention : {&one, &other}) {
    paceline_attention call = attention->call();
    CHECK_EQ(paceline_attention_backward(&call, 0, nullptr), PACELINE_OK);
  }
  CHECK(one.table_grad() == other.table_grad());
}

CASE(attention_refuses_what_its_kernels_cannot_do) {
  FakeCuda cuda(kModules);
  if (!CHECK(cuda.open_operators() == "")) return;
  Attention attention({4, 2, 49, 2});
  const auto refused = [&](auto change) {
    paceline_attention call = attention.call();
    change(call);
    cuda.forget();
    return paceline_attention_forward(&call, 0, nullptr) == PACELINE_EINVAL &&
           paceline_attention_backward(&call, 0, nullptr) == PACELINE_EINVAL &&
           cuda.log().find("cuLaunchKernel") == std::string::npos;
  };
  CHECK(refused([](paceline_attention& call) { call.size = 8; }));
  CHECK(refused([](paceline_attention& call) { call.tokens = 65; }));
  CHECK(refused([](paceline_attention& call) { call.tokens = 0; }));
  CHECK(refused([](paceline_attention& call) { call.windows = 3; }));
  CHECK(refused([](paceline_attention& call) { call.mask = nullptr; }));
  CHECK(refused([](paceline_attention& call) { call.slots = 5; }));
  CHECK(refused([](paceline_attention& call) { call.type = 2; }));
  CHECK(refused([](paceline_attention& call) { call.token_stride = 12; }));
  CHECK(refused(
      [](paceline_attention& call) { call.q = static_cast<const std::uint16_t*>(call.q) + 1; }));
  CHECK(refused([](paceline_attention& call) { call.table = nullptr; }));
  paceline_attention call = attention.call();
  CHECK_EQ(paceline_attention_forward(&call, 1, nullptr), PACELINE_EDEVICE);  // not opened
  cuda.set("cuLaunchKernel", 719);
  CHECK_EQ(paceline_attention_forward(&call, 0, nullptr), PACELINE_EDEVICE);
}

// Two levels of points, and images with and without ground truths.
struct Scene {
  static constexpr std::uint32_t kColumns = 9;
  std::vector<float> points[2], centers, boxes, rest;
  std::vector<int64_t> offsets{0}, labels, attributes;
  std::vector<int64_t> found_labels[2], found_attributes[2];
  std::vector<float> targets[2], centerness[2];
  paceline_fcos3d_level levels[2];

  Scene(int64_t images, unsigned seed) {
    std::mt19937 random(seed);
    const auto upto = [&](float limit) {
      return std::uniform_real_distribution<float>(0, limit)(random);
    };
    for (int level = 0; level < 2; ++level)
      for (int i = 0; i < 300; ++i)
        for (const int side : {i % 20, i / 20})
          points[level].push_back(static_cast<float>(side * 8 * (level + 1) + 4));
    for (int64_t image = 0; image < images; ++image) {
      for (int64_t i = 0; i < image % 4 * 5; ++i) {
        const float x = upto(160), y = upto(120);
        for (const float value : {x, y}) centers.push_back(i == 3 ? NAN : value);
        for (const float value : {x - upto(60), y - upto(60), x + upto(60), y + upto(60)})
          boxes.push_back(i == 5 ? NAN : value);
        for (std::uint32_t k = 2; k < kColumns; ++k) rest.push_back(upto(5));
        labels.push_back(i);
        attributes.push_back(i + 100);
      }
      offsets.push_back(static_cast<int64_t>(labels.size()));
    }
    for (int level = 0; level < 2; ++level) {
      const auto rows = at(images) * points[level].size() / 2;
      found_labels[level].assign(rows, -7);
      found_attributes[level].assign(rows, -7);
      targets[level].assign(rows * kColumns, -7);
      centerness[level].assign(rows, -7);
    }
  }

  paceline_fcos3d call() {
    for (int i = 0; i < 2; ++i)
      levels[i] = {points[i].data(),
                   static_cast<int64_t>(points[i].size() / 2),
                   12.0F * static_cast<float>(i + 1),
                   8.0F * static_cast<float>(i + 1),
                   i == 0 ? -1.0F : 48.0F,
                   i == 0 ? 48.0F : 1e8F,
                   found_labels[i].data(),
                   targets[i].data(),
                   centerness[i].data(),
                   found_attributes[i].data()};
    return {.size = sizeof(paceline_fcos3d),
            .columns = kColumns,
            .levels = 2,
            .alpha = 2.5F,
            .images = static_cast<int64_t>(offsets.size()) - 1,
            .offsets = offsets.data(),
            .centers = centers.data(),
            .boxes = boxes.data(),
            .rest = rest.data(),
            .labels = labels.data(),
            .attributes = attributes.data(),
            .background = 10,
            .no_attribute = 9,
            .level = levels};
  }
};

CASE(fcos3d_targets_on_a_gpu_are_those_of_the_cpu) {
  FakeCuda cuda(kModules);
  if (!CHECK(cuda.open_operators() == "")) return;
  for (const int64_t images : {6, 257}) {  // more than a launch takes
    Scene device(images, 3);
    Scene host(images, 3);
    const paceline_fcos3d on_device = device.call();
    const paceline_fcos3d on_host = host.call();
    CHECK_EQ(paceline_fcos3d_targets_device(&on_device, 0, nullptr), PACELINE_OK);
    CHECK_EQ(paceline_fcos3d_targets(&on_host, 1), PACELINE_OK);
    for (int level = 0; level < 2; ++level) {
      CHECK(device.found_labels[level] == host.found_labels[level]);
      CHECK(device.found_attributes[level] == host.found_attributes[level]);
      CHECK(device.targets[level] == host.targets[level]);
      CHECK(device.centerness[level] == host.centerness[level]);
    }
  }
  CHECK(!cuda.uneven());
}

// Assigns on the fake device, and says whether the CPU assigns the same.
bool is_that_of_the_cpu(Predictions& device, Predictions& host, std::uint32_t topk) {
  paceline_simota on_device = device.call();
  paceline_simota on_host = host.call();
  on_device.topk = on_host.topk = topk;
  on_device.least_overlap = on_host.least_overlap = 1e-3;
  std::vector<double> room(2 * at(device.images * device.priors) + 1);
  return paceline_simota_assign_device(&on_device, room.data(), 0, nullptr) == PACELINE_OK &&
         paceline_simota_assign(&on_host, 1) == PACELINE_OK && device.winners == host.winners &&
         device.winner_labels == host.winner_labels &&
         (host.overlaps.empty() || std::memcmp(device.overlaps.data(), host.overlaps.data(),
                                               host.overlaps.size() * sizeof(float)) == 0);
}

CASE(simota_on_a_gpu_assigns_as_the_cpu) {
  FakeCuda cuda(kModules);
  if (!CHECK(cuda.open_operators() == "")) return;
  for (unsigned seed = 1; seed < 4; ++seed) {
    for (const int64_t side : {0, 1, 9}) {
      Predictions device(side, seed);
      Predictions host(side, seed);
      if (seed % 2 == 0)
        for (Predictions* each : {&device, &host}) {
          if (!each->boxes.empty()) each->boxes[1] = 0;  // a number where NaN was
          each->truths[5] = NAN;
          std::copy_n(&each->truths[8], 4, &each->truths[12]);  // two that cost the same
          each->labels[3] = each->labels[2];
        }
      CHECK(is_that_of_the_cpu(device, host, seed % 3 == 0 ? 30 : 10));
    }
  }
  // More priors in one region than a block keeps, so that all are looked at again and again.
  Predictions device(33, 1);
  Predictions host(33, 1);
  for (Predictions* each : {&device, &host}) {
    each->boxes[1] = 0;
    for (size_t i = 0; i < each->truths.size(); ++i) each->truths[i] = i % 4 < 2 ? -1.0F : 400.0F;
    for (size_t i = 0; i < each->boxes.size(); ++i) each->boxes[i] += i % 4 < 2 ? -100.0F : 100.0F;
    for (size_t i = 2; i < each->places.size(); i += 4) each->places[i] = each->places[i + 1] = 300;
  }
  CHECK(is_that_of_the_cpu(device, host, 10));
  CHECK(!cuda.uneven());
}

CASE(simota_on_a_gpu_leaves_out_a_label_that_is_no_class) {
  FakeCuda cuda(kModules);
  if (!CHECK(cuda.open_operators() == "")) return;
  Predictions predictions(9);
  for (int64_t& label : predictions.labels) label = predictions.classes;
  predictions.labels[1] = -1;
  paceline_simota call = predictions.call();
  std::vector<double> room(2 * at(predictions.images * predictions.priors));
  CHECK_EQ(paceline_simota_assign(&call, 1), PACELINE_EINVAL);
  CHECK_EQ(paceline_simota_assign_device(&call, room.data(), 0, nullptr), PACELINE_OK);
  for (const int64_t winner : predictions.winners) CHECK_EQ(winner, -1);
  CHECK_EQ(paceline_simota_assign_device(&call, nullptr, 0, nullptr), PACELINE_EINVAL);
  call.size = 8;
  CHECK_EQ(paceline_simota_assign_device(&call, room.data(), 0, nullptr), PACELINE_EINVAL);
}

CASE(fcos3d_targets_on_a_gpu_of_nothing) {
  FakeCuda cuda(kModules);
  if (!CHECK(cuda.open_operators() == "")) return;
  Scene scene(1, 3);
  paceline_fcos3d call = scene.call();
  call.images = 0;
  cuda.forget();
  CHECK_EQ(paceline_fcos3d_targets_device(&call, 0, nullptr), PACELINE_OK);
  CHECK(cuda.log() == "");
  call.size = 8;
  CHECK_EQ(paceline_fcos3d_targets_device(&call, 0, nullptr), PACELINE_EINVAL);
}

}  // namespace
