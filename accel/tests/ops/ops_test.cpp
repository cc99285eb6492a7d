// SPDX-License-Identifier: Apache-2.0
// The operators of detection models: instruction sets and thread counts against each other, and
// what the C ABI refuses. What they compute is compared with the original algorithms in test_*.py.
#include "paceline/ops.h"

#include <array>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <random>
#include <vector>

#include "base/simd.hpp"
#include "check.hpp"
#include "kernels.hpp"
#include "predictions.hpp"
#include "simota.hpp"

namespace {

namespace base = paceline::base;
namespace ops = paceline::ops;
using paceline::check::Predictions;

std::vector<const ops::Kernels*> levels_of_ops() {
  std::vector<const ops::Kernels*> all{&ops::kScalarKernels};
#if defined(__x86_64__)
  if (base::has_avx2()) all.push_back(&ops::kAvx2Kernels);
  if (base::has_avx512()) all.push_back(&ops::kAvx512Kernels);
#endif
  return all;
}

CASE(ops_simota_is_the_same_on_every_instruction_set_and_number_of_threads) {
  for (const std::int64_t side : {0, 1, 3, 9}) {
    Predictions once(side);
    paceline_simota first = once.call();
    CHECK_EQ(ops::simota_assign(ops::kScalarKernels, first, 1), PACELINE_OK);
    for (const ops::Kernels* kernels : levels_of_ops()) {
      for (const int threads : {1, 2, 5}) {
        Predictions again(side);
        paceline_simota call = again.call();
        CHECK_EQ(ops::simota_assign(*kernels, call, threads), PACELINE_OK);
        CHECK(again.winners == once.winners);
        CHECK(again.winner_labels == once.winner_labels);
        CHECK(again.overlaps == once.overlaps);
      }
    }
  }
}

CASE(ops_kernels_compute_the_same_bits_on_every_instruction_set) {
  std::mt19937 random(2);
  std::uniform_real_distribution<double> place(-50, 50);
  constexpr std::size_t kMost = 133;
  std::array<std::vector<double>, 5> columns;
  for (auto& column : columns)
    for (std::size_t i = 0; i < kMost; ++i) column.push_back(place(random));
  columns[0][3] = columns[3][7] = std::numeric_limits<double>::quiet_NaN();
  columns[1][4] = std::numeric_limits<double>::infinity();
  const ops::Boxes boxes{columns[0].data(), columns[1].data(), columns[2].data(), columns[3].data(),
                         columns[4].data()};
  const ops::Places places{columns[0].data(), columns[1].data(), columns[2].data(),
                           columns[3].data()};
  const ops::Truth truth{-10, -20, 30, 20, 1600, 10, 0};
  for (const ops::Kernels* kernels : levels_of_ops()) {
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{7}, kMost}) {
      const auto size = static_cast<std::int64_t>(count);
      std::vector<double> wanted(count), found(count);
      ops::kScalarKernels.overlaps(boxes, size, truth, wanted.data());
      kernels->overlaps(boxes, size, truth, found.data());
      CHECK(count == 0 || std::memcmp(wanted.data(), found.data(), count * sizeof(double)) == 0);
      std::vector<std::uint8_t> wanted_codes(count), codes(count);
      ops::kScalarKernels.regions(places, size, truth, wanted_codes.data());
      kernels->regions(places, size, truth, codes.data());
      CHECK(wanted_codes == codes);
    }
  }
}

CASE(ops_products_of_misses_cover_every_class_and_notice_what_is_no_probability) {
  for (const ops::Kernels* kernels : levels_of_ops()) {
    for (const std::int64_t classes : {0, 1, 8, 31, 32, 33, 80}) {
      std::vector<float> scores(static_cast<std::size_t>(classes), 0.5F);
      std::vector<double> products(static_cast<std::size_t>(classes / 32 + 1), 1);
      CHECK(kernels->misses(scores.data(), classes, products.data()));
      double all = 1;
      for (const double product : products) all *= product;
      CHECK_EQ(all, std::ldexp(1.0, -static_cast<int>(classes)));
      for (std::size_t i = 0; i < scores.size(); ++i) {
        for (const float bad : {-0.5F, 1.5F, std::numeric_limits<float>::quiet_NaN()}) {
          scores[i] = bad;
          CHECK(!kernels->misses(scores.data(), classes, products.data()));
          scores[i] = 0.5F;
        }
      }
    }
  }
}

// A level of 5 x 3 points and two images, of which the first has both ground truths.
struct Fcos3d {
  std::vector<float> points, targets = std::vector<float>(60), centerness = std::vector<float>(30);
  std::vector<std::int64_t> labels = std::vector<std::int64_t>(30),
                            attributes = std::vector<std::int64_t>(30);
  std::vector<std::int64_t> offsets{0, 2, 2}, truth_labels{3, 4}, truth_attributes{1, 2};
  std::vector<float> centers{12, 12, 12, 12}, boxes{0, 0, 40, 40, 0, 0, 40, 40};
  paceline_fcos3d_level level{};

  Fcos3d() {
    for (int i = 0; i < 15; ++i) {
      points.push_back(static_cast<float>(i % 5 * 8 + 4));
      const int row = i / 5;
      points.push_back(static_cast<float>(row * 8 + 4));
    }
  }
  paceline_fcos3d call() {
    level = {.points = points.data(),
             .count = 15,
             .radius = 12,
             .divisor = 8,
             .low = -1,
             .high = 48,
             .labels = labels.data(),
             .targets = targets.data(),
             .centerness = centerness.data(),
             .attributes = attributes.data()};
    return {.size = sizeof(paceline_fcos3d),
            .columns = 2,
            .levels = 1,
            .alpha = 2.5F,
            .images = 2,
            .offsets = offsets.data(),
            .centers = centers.data(),
            .boxes = boxes.data(),
            .rest = nullptr,
            .labels = truth_labels.data(),
            .attributes = truth_attributes.data(),
            .background = 10,
            .no_attribute = 9,
            .level = &level};
  }
};

CASE(ops_fcos3d_finds_the_same_points_on_a_grid_and_in_any_order) {
  Fcos3d grid, shuffled;
  std::swap(shuffled.points[0], shuffled.points[2]);  // the first two points change places
  paceline_fcos3d call = grid.call();
  CHECK_EQ(paceline_fcos3d_targets(&call, 2), PACELINE_OK);
  call = shuffled.call();
  CHECK_EQ(paceline_fcos3d_targets(&call, 1), PACELINE_OK);
  std::swap(shuffled.labels[0], shuffled.labels[1]);
  CHECK(grid.labels == shuffled.labels);
  // Three columns and three rows of points lie less than 12 pixels from the centre at 12. Equal
  // distances go to the first ground truth.
  std::vector<std::int64_t> wanted(30, 10);
  for (const std::size_t i : {0U, 1U, 2U, 5U, 6U, 7U, 10U, 11U, 12U}) wanted[i] = 3;
  CHECK(grid.labels == wanted);
  CHECK_EQ(grid.attributes[0], 1);
  CHECK_EQ(grid.attributes[3], 9);
  CHECK_EQ(grid.targets[0], -1.0F);
}

CASE(ops_voxels_stand_in_the_order_of_their_points) {
  const std::vector<float> points{1.5F, 0.5F, 0.5F, 0.5F, 0.5F, 0.5F, 1.2F, 0.1F, 0.9F,
                                  9,    9,    9,    0.5F, 0.5F, 0.5F, 1.5F, 0.5F, 0.5F};
  const std::vector<std::int64_t> offsets{0, 4, 4, 6};
  std::vector<std::int64_t> voxel_of_point(6), voxel_offsets(4);
  std::vector<std::int32_t> coords(24), counts(6);
  paceline_voxels call{.size = sizeof(paceline_voxels),
                       .columns = 3,
                       .clouds = 3,
                       .offsets = offsets.data(),
                       .points = points.data(),
                       .low = {0, 0, 0},
                       .voxel = {1, 1, 1},
                       .grid = {2, 2, 2},
                       .max_voxels = -1,
                       .max_points = 1,
                       .voxel_of_point = voxel_of_point.data(),
                       .coords = coords.data(),
                       .counts = counts.data(),
                       .voxel_offsets = voxel_offsets.data()};
  CHECK_EQ(paceline_voxels_number(&call, 3), PACELINE_OK);
  CHECK((voxel_of_point == std::vector<std::int64_t>{0, 1, 0, -1, 2, 3}));
  CHECK((voxel_offsets == std::vector<std::int64_t>{0, 2, 2, 4}));
  coords.resize(16);
  CHECK((coords == std::vector<std::int32_t>{0, 0, 0, 1, 0, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 1}));
  const std::vector<float> first_points{1.5F, 0.5F, 0.5F, 0.5F, 0.5F, 0.5F,
                                        0.5F, 0.5F, 0.5F, 1.5F, 0.5F, 0.5F};
  std::vector<float> filled(12);
  CHECK_EQ(paceline_voxels_fill(&call, filled.data(), 2), PACELINE_OK);
  CHECK(filled == first_points);

  // What the caller may have changed in between. The memory checker notices a write outside.
  counts.assign(6, 5);
  CHECK_EQ(paceline_voxels_fill(&call, filled.data(), 2), PACELINE_OK);
  CHECK(filled == first_points);
  counts.assign(6, -1);
  CHECK_EQ(paceline_voxels_fill(&call, filled.data(), 2), PACELINE_OK);
  CHECK(filled == std::vector<float>(12));
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  for (const std::int64_t row : {std::int64_t{-2}, std::int64_t{2}, kLeast}) {
    voxel_of_point[1] = row;  // the first cloud has the rows 0 and 1
    CHECK_EQ(paceline_voxels_fill(&call, filled.data(), 2), PACELINE_EINVAL);
  }
  voxel_of_point[1] = 1;
  voxel_offsets[1] = 5;  // falls afterwards
  CHECK_EQ(paceline_voxels_fill(&call, filled.data(), 2), PACELINE_EINVAL);
  voxel_offsets[1] = 2;
  CHECK_EQ(paceline_voxels_fill(&call, nullptr, 2), PACELINE_EINVAL);
}

CASE(ops_refuse_arguments_out_of_range) {
  Fcos3d targets;
  paceline_fcos3d fcos = targets.call();
  fcos.columns = 1;
  CHECK_EQ(paceline_fcos3d_targets(&fcos, 1), PACELINE_EINVAL);
  fcos = targets.call();
  targets.offsets[1] = 3;  // falls afterwards
  CHECK_EQ(paceline_fcos3d_targets(&fcos, 1), PACELINE_EINVAL);
  CHECK_EQ(paceline_fcos3d_targets(nullptr, 1), PACELINE_EINVAL);
  targets.offsets[1] = 2;
  CHECK_EQ(paceline_fcos3d_targets(&fcos, 1), PACELINE_OK);
  fcos.columns = 3;  // without `rest`
  CHECK_EQ(paceline_fcos3d_targets(&fcos, 1), PACELINE_EINVAL);
  fcos = targets.call();
  targets.level.targets = nullptr;
  CHECK_EQ(paceline_fcos3d_targets(&fcos, 1), PACELINE_EINVAL);

  Predictions predictions(3);
  paceline_simota simota = predictions.call();
  simota.topk = 0;
  CHECK_EQ(paceline_simota_assign(&simota, 1), PACELINE_EINVAL);
  simota = predictions.call();
  simota.least_overlap = 0;
  CHECK_EQ(paceline_simota_assign(&simota, 1), PACELINE_EINVAL);
  simota = predictions.call();
  predictions.labels[2] = 70;
  CHECK_EQ(paceline_simota_assign(&simota, 1), PACELINE_EINVAL);
  CHECK_EQ(simota.bad_score, -1);
  predictions.labels[2] = 69;
  for (float& score : predictions.scores) score = 2;
  CHECK_EQ(paceline_simota_assign(&simota, 1), PACELINE_EINVAL);
  CHECK(simota.bad_score >=
        9 * 70);  // the first image has no ground truth, so its scores are not read
  CHECK_EQ(paceline_simota_assign(nullptr, 1), PACELINE_EINVAL);
  simota = predictions.call();
  simota.size = 8;
  simota.bad_score = 7;
  CHECK_EQ(paceline_simota_assign(&simota, 1), PACELINE_EINVAL);
  CHECK_EQ(simota.bad_score, 7);  // may lie behind what the caller has
  simota = predictions.call();
  simota.classes = std::int64_t{1} << 58;
  CHECK_EQ(paceline_simota_assign(&simota, 1), PACELINE_EINVAL);
  simota = predictions.call();
  simota.winner_labels = nullptr;
  CHECK_EQ(paceline_simota_assign(&simota, 1), PACELINE_EINVAL);

  paceline_voxels voxels{};
  const std::int64_t none[] = {0};
  voxels.size = sizeof voxels;
  voxels.columns = 3;
  voxels.offsets = none;
  std::int64_t first = -1;
  voxels.voxel_offsets = &first;
  CHECK_EQ(paceline_voxels_number(&voxels, 1), PACELINE_EINVAL);
  for (auto& along : voxels.grid) along = 1 << 21;
  CHECK_EQ(paceline_voxels_number(&voxels, 1), PACELINE_EINVAL);
  for (auto& along : voxels.grid) along = 1 << 20;
  CHECK_EQ(paceline_voxels_number(&voxels, 1), PACELINE_OK);
  CHECK_EQ(first, 0);
  CHECK_EQ(paceline_voxels_fill(&voxels, nullptr, 1), PACELINE_EINVAL);
}

}  // namespace
