// SPDX-License-Identifier: Apache-2.0
// SimOTA on a GPU: ../simota.cpp says the same for processors. This file has device code only, for
// nvcc and NVRTC. The kernel paceline_simota_priors finds the valid priors, paceline_simota_match
// lets each ground truth take its priors, and paceline_simota_write gives a prior that several have
// taken to one of them. Costs are computed in float64, as on processors. A block keeps the few
// numbers that it chooses from in shared memory, and computes them anew where they are too many for
// that.
//
// Atomics only count, and take the least: so the order of threads decides nothing.
#include "warp.hpp"

namespace paceline::ops::device {
namespace {

constexpr double kOutside = 100000;       // added to the cost outside box or centre region
constexpr double kLeastLogarithm = -100;  // as in PyTorch's binary cross entropy
constexpr double kLeastUnion = 1e-6;      // an empty union would divide by zero
constexpr double kFar = 1e300;            // beyond every cost and every overlap
constexpr int kListed = 1024;             // numbers that a block keeps

// NaN in `a` or `b` must give NaN, as in PyTorch.
PACELINE_INLINE double larger(double a, double b) { return a > b || a != a ? a : b; }
PACELINE_INLINE double smaller(double a, double b) { return a < b || a != a ? a : b; }

struct Truth {
  double left, top, right, bottom, area;
  Int64 label;
  bool is_real;  // an overlap with it is a number, and its label is a class
};

PACELINE_INLINE double area_of(const float* box) {
  return (static_cast<double>(box[2]) - box[0]) * (static_cast<double>(box[3]) - box[1]);
}

PACELINE_INLINE Truth truth_at(const Assignment& all, Int64 number) {
  const float* const box = all.truths + 4 * number;
  const double area = area_of(box);
  const Int64 label = all.labels[number];
  return {box[0],
          box[1],
          box[2],
          box[3],
          area,
          label,
          area == area && label >= 0 && label < all.classes};
}

// Whether a prior lies in the box, and in the centre region.
struct Regions {
  bool box, centre;
};

PACELINE_INLINE Regions regions_of(const Assignment& all, Int64 prior, const Truth& truth) {
  const float* const place = all.places + 4 * prior;
  const double x = place[0], y = place[1];
  const double reach_x = all.radius * place[2], reach_y = all.radius * place[3];
  const double middle_x = (truth.left + truth.right) / 2;
  const double middle_y = (truth.top + truth.bottom) / 2;
  return {x > truth.left && y > truth.top && x < truth.right &&
          y<truth.bottom, x> middle_x - reach_x && y > middle_y - reach_y &&
          x < middle_x + reach_x && y < middle_y + reach_y};
}

PACELINE_INLINE double overlap_of(const Assignment& all, Int64 row, const Truth& truth) {
  const float* const box = all.boxes + 4 * row;
  const double width = smaller(box[2], truth.right) - larger(box[0], truth.left);
  const double height = smaller(box[3], truth.bottom) - larger(box[1], truth.top);
  const double shared = larger(width, 0.0) * larger(height, 0.0);
  return shared / larger(area_of(box) + truth.area - shared, kLeastUnion);
}

PACELINE_INLINE double log_of_miss(float score) {
  return larger(log1p(-static_cast<double>(score)), kLeastLogarithm);
}

PACELINE_INLINE double cost_of(const Assignment& all, Int64 row, const Truth& truth, double overlap,
                               bool in_both) {
  const float score = all.scores[row * all.classes + truth.label];
  const double hit = larger(log(static_cast<double>(score)), kLeastLogarithm);
  const double of_class = all.misses[row] + log_of_miss(score) - hit;
  return of_class * all.cls_weight - log(overlap + all.least_overlap) * all.iou_weight +
         (in_both ? 0 : kOutside);
}

// A number and where it stands. Equal numbers go by their places. NaN is the greatest number.
struct Item {
  double number;
  Int64 place;
};

PACELINE_INLINE bool before(const Item& a, const Item& b) {
  return a.number < b.number || (a.number == b.number && a.place < b.place);
}

// What the threads of a block share while they choose.
struct Choice {
  double number[kListed];
  int place[kListed];
  int listed;   // how many there are, which may be more than fit
  int valid;    // how many priors are valid
  int unknown;  // how many overlaps are NaN
  Item best[kTargetThreads];
};

// Returns to all threads the least item behind `last`. item(i) gives the i-th one.
template <typename Get>
PACELINE_INLINE Item next_item(Choice& choice, Int64 count, const Item& last, const Get& item) {
  const int thread = static_cast<int>(threadIdx.x);
  Item best = {kFar, 0};
  for (Int64 i = thread; i < count; i += kTargetThreads) {
    const Item one = item(i);
    if (before(last, one) && before(one, best)) best = one;
  }
  choice.best[thread] = best;
  __syncthreads();
  for (int half = kTargetThreads / 2; half > 0; half /= 2) {
    if (thread < half && before(choice.best[thread + half], choice.best[thread]))
      choice.best[thread] = choice.best[thread + half];
    __syncthreads();
  }
  best = choice.best[0];
  __syncthreads();
  return best;
}

PACELINE_INLINE void keep(Choice& choice, double number, Int64 place) {
  const int at = atomicAdd(&choice.listed, 1);
  if (at >= kListed) return;
  choice.number[at] = number;
  choice.place[at] = static_cast<int>(place);
}

PACELINE_INLINE Item kept(const Choice& choice, Int64 at) {
  return {choice.number[at], choice.place[at]};
}

constexpr double kBeforeAll = -2e300;

// One ground truth, matched by a block.
class Match {
 public:
  PACELINE_INLINE Match(const Assignment& all, Choice& choice, const Truth& truth, int image)
      : all_(all), choice_(choice), truth_(truth), first_(image * all.priors) {}

  // Returns how many priors the truth takes: the sum of its highest overlaps, rounded down, at
  // least 1. 0: there are none.
  PACELINE_INLINE int wanted() {
    begin();
    for (Int64 prior = threadIdx.x; prior < all_.priors; prior += kTargetThreads) {
      if (all_.matches[first_ + prior] < 0) continue;
      atomicAdd(&choice_.valid, 1);
      const double overlap = overlap_of(all_, first_ + prior, truth_);
      if (overlap != overlap) atomicAdd(&choice_.unknown, 1);
      if (overlap > 0) keep(choice_, -overlap, prior);
    }
    __syncthreads();
    const int valid = choice_.valid;
    // PyTorch takes NaN for the highest, and the sum is NaN.
    const bool unknown = choice_.unknown > 0;
    double sum = 0;
    Item last = {kBeforeAll, 0};
    for (Bits32 i = 0; i < all_.topk && valid > 0 && !unknown; ++i) {
      last = choice_.listed <= kListed
                 ? next_item(choice_, choice_.listed, last,
                             [&](Int64 at) { return kept(choice_, at); })
                 : next_item(choice_, all_.priors, last, [&](Int64 prior) {
                     if (all_.matches[first_ + prior] < 0) return Item{kFar, prior};
                     return Item{-overlap_of(all_, first_ + prior, truth_), prior};
                   });
      if (last.number >= 0) break;  // the others add nothing
      sum -= last.number;
    }
    __syncthreads();
    return static_cast<int>(smaller(larger(sum, 1), valid));
  }

  // Takes the cheapest priors. Those in both box and centre region come before all others.
  PACELINE_INLINE void take(int wanted, int truth) {
    begin();
    for (Int64 prior = threadIdx.x; prior < all_.priors; prior += kTargetThreads) {
      if (all_.matches[first_ + prior] < 0) continue;
      const Regions regions = regions_of(all_, prior, truth_);
      if (!regions.box || !regions.centre) continue;
      const double own = cost(prior, true);
      if (own < kOutside / 2) keep(choice_, own, prior);
    }
    __syncthreads();
    const int listed = choice_.listed;
    const bool enough = listed >= wanted && listed <= kListed;
    Item last = {kBeforeAll, 0};
    for (int i = 0; i < wanted; ++i) {
      last = enough ? next_item(choice_, listed, last, [&](Int64 at) { return kept(choice_, at); })
                    : next_item(choice_, all_.priors, last, [&](Int64 prior) {
                        if (all_.matches[first_ + prior] < 0) return Item{kFar, prior};
                        const Regions regions = regions_of(all_, prior, truth_);
                        return Item{cost(prior, regions.box && regions.centre), prior};
                      });
      if (threadIdx.x == 0) {
        atomicAdd(&all_.matches[first_ + last.place], 1);
        atomicMin(&all_.winner[first_ + last.place], truth);
      }
    }
  }

 private:
  PACELINE_INLINE void begin() {
    if (threadIdx.x == 0) choice_.listed = choice_.valid = choice_.unknown = 0;
    __syncthreads();
  }

  // NaN is the highest cost.
  PACELINE_INLINE double cost(Int64 prior, bool in_both) const {
    const Int64 row = first_ + prior;
    const double found = cost_of(all_, row, truth_, overlap_of(all_, row, truth_), in_both);
    return found == found ? found : kFar / 2;
  }

  const Assignment& all_;
  Choice& choice_;
  const Truth& truth_;
  Int64 first_;  // row of the image's first prior
};

}  // namespace

// A warp takes one prior of one image: is it in the box or centre region of any ground truth, and
// what would it cost if no class were right? Without the 4 a compiler spills for a sixth block.
extern "C" __global__ void __launch_bounds__(kTargetThreads, 4)
    paceline_simota_priors(const __grid_constant__ Assignment all) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const Int64 row = static_cast<Int64>(blockIdx.x) * (kTargetThreads / 32) + threadIdx.x / 32;
  const bool is_one = row < all.images * all.priors;
  const auto image = static_cast<int>(is_one ? row / all.priors : 0);
  const Int64 prior = row - image * all.priors;
  double valid = 0;
  if (is_one) {
    for (int truth = all.offsets[image] + lane; truth < all.offsets[image + 1]; truth += 32) {
      const Regions regions = regions_of(all, prior, truth_at(all, truth));
      valid += regions.box || regions.centre ? 1 : 0;
    }
  }
#pragma unroll
  for (int mask = 1; mask < 32; mask *= 2) valid += of_neighbour(valid, mask);
  double misses = 0;
  if (valid > 0)
    for (Int64 i = lane; i < all.classes; i += 32)
      misses -= log_of_miss(all.scores[row * all.classes + i]);
#pragma unroll
  for (int mask = 1; mask < 32; mask *= 2) misses += of_neighbour(misses, mask);
  if (!is_one || lane != 0) return;
  all.misses[row] = misses;
  all.matches[row] = valid > 0 ? 0 : -1;
  all.winner[row] = 0x7fffffff;
}

// A block takes one ground truth.
extern "C" __global__ void __launch_bounds__(kTargetThreads)
    paceline_simota_match(const __grid_constant__ Assignment all) {
  __shared__ Choice choice;
  const int number = all.offsets[0] + static_cast<int>(blockIdx.x);
  int image = 0;
  while (number >= all.offsets[image + 1]) ++image;
  const Truth truth = truth_at(all, number);
  if (!truth.is_real) return;
  Match match(all, choice, truth, image);
  const int wanted = match.wanted();
  match.take(wanted, number - all.offsets[image]);
}

// A thread takes one prior of one image. Of several ground truths that have taken it, that one wins
// which it costs least, whether that one has taken it or not. NaN counts as the least, as in
// torch.min.
extern "C" __global__ void __launch_bounds__(kTargetThreads)
    paceline_simota_write(const __grid_constant__ Assignment all) {
  const Int64 row = static_cast<Int64>(blockIdx.x) * kTargetThreads + threadIdx.x;
  if (row >= all.images * all.priors) return;
  const auto image = static_cast<int>(row / all.priors);
  const Int64 prior = row % all.priors;
  const int begin = all.offsets[image];
  const int matches = all.matches[row];
  int winner = matches > 0 ? all.winner[row] : -1;
  double least = kFar;
  for (int number = begin; matches > 1 && number < all.offsets[image + 1]; ++number) {
    const Truth truth = truth_at(all, number);
    if (!truth.is_real) continue;
    const Regions regions = regions_of(all, prior, truth);
    const double own =
        cost_of(all, row, truth, overlap_of(all, row, truth), regions.box && regions.centre);
    if (own < least || own != own) winner = number - begin;
    if (own != own) break;
    least = smaller(own, least);
  }
  all.winners[row] = winner;
  all.winner_labels[row] = winner < 0 ? -1 : all.labels[begin + winner];
  all.overlaps[row] =
      winner < 0 ? 0 : static_cast<float>(overlap_of(all, row, truth_at(all, begin + winner)));
}

}  // namespace paceline::ops::device
