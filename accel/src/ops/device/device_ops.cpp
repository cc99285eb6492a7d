// SPDX-License-Identifier: Apache-2.0
#include "device_ops.hpp"

#include <algorithm>

#include "../../cuda/kernel_set.hpp"
#include "launches.hpp"

namespace paceline::ops::device {
namespace {

enum Function : std::size_t { kForward, kBackward, kBias, kTable };
enum Step : std::size_t { kPriors, kMatch, kWrite };

cuda::KernelSet& attention_kernels() {
  static cuda::KernelSet set("attention",
                             {"paceline_attention_forward", "paceline_attention_backward",
                              "paceline_attention_bias", "paceline_attention_table"});
  return set;
}

cuda::KernelSet& fcos3d_kernels() {
  static cuda::KernelSet set("fcos3d", {"paceline_fcos3d_targets"});
  return set;
}

cuda::KernelSet& simota_kernels() {
  static cuda::KernelSet set(
      "simota", {"paceline_simota_priors", "paceline_simota_match", "paceline_simota_write"});
  return set;
}

unsigned blocks_of(Int64 items, Int64 of_block) {
  return static_cast<unsigned>((items + of_block - 1) / of_block);
}

Attention launch_of(const paceline_attention& all) {
  Attention launch{};
  launch.q = static_cast<const Bits16*>(all.q);
  launch.k = static_cast<const Bits16*>(all.k);
  launch.v = static_cast<const Bits16*>(all.v);
  launch.table = all.table;
  launch.index = reinterpret_cast<const Int64*>(all.index);
  launch.mask = all.mask;
  launch.out = static_cast<Bits16*>(all.out);
  launch.out_grad = static_cast<const Bits16*>(all.out_grad);
  launch.q_grad = static_cast<Bits16*>(all.q_grad);
  launch.k_grad = static_cast<Bits16*>(all.k_grad);
  launch.v_grad = static_cast<Bits16*>(all.v_grad);
  launch.table_grad = all.table_grad;
  launch.sums = all.sums;
  launch.windows = all.windows;
  launch.window_stride = all.window_stride;
  launch.token_stride = all.token_stride;
  launch.masks = all.masks;
  launch.tokens = static_cast<Bits32>(all.tokens);
  launch.heads = static_cast<Bits32>(all.heads);
  launch.entries = static_cast<Bits32>(all.entries);
  launch.slots = static_cast<Bits32>(all.slots);
  launch.type = all.type == PACELINE_ATTENTION_BF16 ? kBf16 : kF16;
  launch.scale = all.scale;
  return launch;
}

// Of a launch.
int result_of(int status) { return status == cuda::kSuccess ? PACELINE_OK : PACELINE_EDEVICE; }

// A launch of some images.
Targets launch_of(const paceline_fcos3d& all, std::int64_t first, std::int64_t images) {
  Targets launch{};
  launch.centers = all.centers;
  launch.boxes = all.boxes;
  launch.rest = all.rest;
  launch.labels = reinterpret_cast<const Int64*>(all.labels);
  launch.attributes = reinterpret_cast<const Int64*>(all.attributes);
  launch.background = all.background;
  launch.no_attribute = all.no_attribute;
  launch.levels = all.levels;
  launch.columns = all.columns;
  launch.first_image = static_cast<Bits32>(first);
  launch.images = static_cast<Bits32>(images);
  launch.alpha = all.alpha;
  for (std::int64_t i = 0; i <= images; ++i)
    launch.offsets[i] = static_cast<int>(all.offsets[first + i]);
  return launch;
}

// A launch of some images, with room behind `room` for what the kernels hand to each other.
Assignment launch_of(const paceline_simota& all, void* room, std::int64_t first,
                     std::int64_t images) {
  const std::int64_t skipped = first * all.priors;
  const std::int64_t rows = all.images * all.priors;
  Assignment launch{};
  launch.boxes = all.boxes + skipped * 4;
  launch.scores = all.scores + skipped * all.classes;
  launch.places = all.places;
  launch.truths = all.truths;
  launch.labels = reinterpret_cast<const Int64*>(all.labels);
  launch.winners = reinterpret_cast<Int64*>(all.winners) + skipped;
  launch.winner_labels = reinterpret_cast<Int64*>(all.winner_labels) + skipped;
  launch.overlaps = all.overlaps + skipped;
  auto* const misses = static_cast<double*>(room);
  auto* const matches = reinterpret_cast<int*>(misses + rows);
  launch.misses = misses + skipped;
  launch.matches = matches + skipped;
  launch.winner = matches + rows + skipped;
  launch.priors = all.priors;
  launch.classes = all.classes;
  launch.radius = all.radius;
  launch.iou_weight = all.iou_weight;
  launch.cls_weight = all.cls_weight;
  launch.least_overlap = all.least_overlap;
  launch.topk = all.topk;
  launch.images = static_cast<Bits32>(images);
  for (std::int64_t i = 0; i <= images; ++i)
    launch.offsets[i] = static_cast<int>(all.offsets[first + i]);
  return launch;
}

}  // namespace

std::string open(int device, const std::string& folder) {
  for (cuda::KernelSet* set : {&attention_kernels(), &fcos3d_kernels(), &simota_kernels()})
    if (std::string problem = set->open(device, folder); !problem.empty()) return problem;
  return {};
}

int fcos3d_targets(const paceline_fcos3d& all, int device, void* stream) {
  const cuda::Kernels* const kernels = fcos3d_kernels().on(device);
  if (kernels == nullptr) return PACELINE_EDEVICE;
  for (std::int64_t first = 0; first < all.images; first += kImagesPerLaunch) {
    const std::int64_t images = std::min<std::int64_t>(kImagesPerLaunch, all.images - first);
    Targets launch = launch_of(all, first, images);
    unsigned blocks = 0;
    for (Bits32 i = 0; i < all.levels; ++i) {
      const paceline_fcos3d_level& level = all.level[i];
      launch.level[i] = {level.points,
                         level.count,
                         reinterpret_cast<Int64*>(level.labels),
                         level.targets,
                         level.centerness,
                         reinterpret_cast<Int64*>(level.attributes),
                         level.radius,
                         level.divisor,
                         level.low,
                         level.high,
                         blocks};
      blocks += blocks_of(level.count * images, kTargetThreads);
    }
    if (blocks == 0) continue;
    if (const int wrong = result_of(kernels->launch(0, blocks, kTargetThreads, stream, &launch));
        wrong != PACELINE_OK)
      return wrong;
  }
  return PACELINE_OK;
}

int simota_assign(const paceline_simota& all, void* room, int device, void* stream) {
  const cuda::Kernels* const kernels = simota_kernels().on(device);
  if (kernels == nullptr) return PACELINE_EDEVICE;
  if (all.priors == 0) return PACELINE_OK;
  for (std::int64_t first = 0; first < all.images; first += kImagesPerLaunch) {
    const std::int64_t images = std::min<std::int64_t>(kImagesPerLaunch, all.images - first);
    Assignment launch = launch_of(all, room, first, images);
    const auto run = [&](Step step, unsigned blocks) -> int {
      if (blocks == 0) return PACELINE_OK;
      return result_of(kernels->launch(step, blocks, kTargetThreads, stream, &launch));
    };
    const Int64 rows = images * all.priors;
    const auto truths = static_cast<unsigned>(launch.offsets[images] - launch.offsets[0]);
    if (const int wrong = run(kPriors, blocks_of(rows, kTargetThreads / 32)); wrong != PACELINE_OK)
      return wrong;
    if (const int wrong = run(kMatch, truths); wrong != PACELINE_OK) return wrong;
    if (const int wrong = run(kWrite, blocks_of(rows, kTargetThreads)); wrong != PACELINE_OK)
      return wrong;
  }
  return PACELINE_OK;
}

int attention_forward(const paceline_attention& attention, int device, void* stream) {
  const cuda::Kernels* const kernels = attention_kernels().on(device);
  if (kernels == nullptr) return PACELINE_EDEVICE;
  Attention launch = launch_of(attention);
  const auto blocks = static_cast<unsigned>(attention.slots * attention.heads);
  return result_of(kernels->launch(kForward, blocks, kAttentionThreads, stream, &launch));
}

int attention_backward(const paceline_attention& attention, int device, void* stream) {
  const cuda::Kernels* const kernels = attention_kernels().on(device);
  if (kernels == nullptr) return PACELINE_EDEVICE;
  Attention launch = launch_of(attention);
  const auto run = [&](Function function, Int64 blocks) {
    return result_of(kernels->launch(function, static_cast<unsigned>(blocks), kAttentionThreads,
                                     stream, &launch));
  };
  constexpr Int64 kOfBlock = 32;                      // sums
  constexpr Int64 kEntries = kAttentionThreads / 32;  // of a block
  const Int64 pairs = attention.heads * attention.tokens * attention.tokens;
  if (const int wrong = run(kBackward, attention.slots * attention.heads); wrong != PACELINE_OK)
    return wrong;
  if (const int wrong = run(kBias, blocks_of(pairs, kOfBlock)); wrong != PACELINE_OK) return wrong;
  return run(kTable, blocks_of(attention.entries * attention.heads, kEntries));
}

}  // namespace paceline::ops::device
