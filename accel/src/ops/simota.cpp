// SPDX-License-Identifier: Apache-2.0
// Costs are computed in double precision from the float32 inputs. So the order of additions decides
// nothing, and the large cost of a prior outside the centre region hides no difference.
#include "simota.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <limits>
#include <new>
#include <vector>

#include "base/parallel.hpp"

namespace paceline::ops {
namespace {

using std::int32_t;
using std::int64_t;
using std::size_t;

constexpr double kOutside = 100'000;      // added to the cost outside box or centre region
constexpr double kLeastLogarithm = -100;  // as in PyTorch's binary cross entropy

// The columns of the priors, which all images share.
struct PlaceColumns {
  std::vector<double> x, y, reach_x, reach_y;

  explicit PlaceColumns(const paceline_simota& all) {
    for (int64_t i = 0; i < all.priors; ++i) {
      const float* place = all.places + 4 * i;
      x.push_back(place[0]);
      y.push_back(place[1]);
      reach_x.push_back(all.radius * place[2]);
      reach_y.push_back(all.radius * place[3]);
    }
  }
  Places from(size_t i) const {
    return {.x = &x[i], .y = &y[i], .reach_x = &reach_x[i], .reach_y = &reach_y[i]};
  }
};

struct BoxColumns {
  std::vector<double> left, top, right, bottom, area;

  void add(const float* box) {
    left.push_back(box[0]);
    top.push_back(box[1]);
    right.push_back(box[2]);
    bottom.push_back(box[3]);
    area.push_back((right.back() - left.back()) * (bottom.back() - top.back()));
  }
  Boxes from(size_t i) const {
    return {.left = &left[i],
            .top = &top[i],
            .right = &right[i],
            .bottom = &bottom[i],
            .area = &area[i]};
  }
};

Truth truth_of(const float* box) {
  const double left = box[0], top = box[1], right = box[2], bottom = box[3];
  return {.left = left,
          .top = top,
          .right = right,
          .bottom = bottom,
          .area = (right - left) * (bottom - top),
          .x = (left + right) / 2,
          .y = (top + bottom) / 2};
}

// Whether the truth has an overlap with any box. NaN in its box makes its area NaN. All costs of
// such a truth would be NaN, and cheapest() would give it the priors of others.
bool is_real(const Truth& truth) { return !std::isnan(truth.area); }

struct Candidate {
  double cost;
  int32_t box;

  // NaN is the highest cost, and equal costs go by their index.
  bool operator<(const Candidate& other) const {
    if (cost < other.cost || other.cost < cost) return cost < other.cost;
    if (std::isnan(cost) != std::isnan(other.cost)) return std::isnan(other.cost);
    return box < other.box;
  }
};

// One image. "Valid" priors lie in the box or in the centre region of any truth; the others are
// left out, and `boxes_` numbers the valid ones.
class Image {
 public:
  Image(const Kernels& kernels, const paceline_simota& all, const PlaceColumns& places,
        int64_t image)
      : kernels_(kernels),
        all_(all),
        places_(places),
        first_prior_(image * all.priors),
        labels_(all.labels + all.offsets[image]) {
    for (int64_t i = all.offsets[image]; i < all.offsets[image + 1]; ++i)
      truths_.push_back(truth_of(all.truths + 4 * i));
  }

  // Returns the index of a score out of [0, 1], or -1.
  int64_t assign() {
    std::fill_n(all_.winners + first_prior_, all_.priors, -1);
    std::fill_n(all_.winner_labels + first_prior_, all_.priors, -1);
    std::fill_n(all_.overlaps + first_prior_, all_.priors, 0.0F);
    find_valid();
    if (const int64_t bad = gather_valid(); bad >= 0) return bad;
    for (size_t truth = 0; truth < truths_.size() && !valid_.empty(); ++truth)
      if (is_real(truths_[truth])) match(truth);
    write();
    return -1;
  }

 private:
  void find_valid() {
    const auto priors = static_cast<size_t>(all_.priors);
    std::vector<std::uint8_t> codes(priors);
    std::vector<std::uint8_t> any(priors);
    for (const Truth& truth : truths_) {
      if (priors > 0) kernels_.regions(places_.from(0), all_.priors, truth, codes.data());
      for (size_t i = 0; i < priors; ++i) any[i] |= codes[i];
      in_both_.emplace_back();
      for (size_t i = 0; i < priors; ++i)
        if (codes[i] == (kInBox | kInCentre)) in_both_.back().push_back(static_cast<int32_t>(i));
    }
    number_.assign(priors, -1);
    for (size_t i = 0; i < priors; ++i) {
      if (any[i] == 0) continue;
      number_[i] = static_cast<int32_t>(valid_.size());
      valid_.push_back(static_cast<int32_t>(i));
    }
    matches_.assign(valid_.size(), 0);
    winners_.assign(valid_.size(), 0);
    overlaps_.resize(valid_.size());
  }

  int64_t gather_valid() {
    std::vector<double> products(
        static_cast<size_t>((all_.classes + kClassesOfProduct - 1) / kClassesOfProduct));
    for (const int32_t prior : valid_) {
      const int64_t row = first_prior_ + prior;
      boxes_.add(all_.boxes + 4 * row);
      const float* scores = all_.scores + row * all_.classes;
      if (!kernels_.misses(scores, all_.classes, products.data())) {
        const float* bad = std::find_if(scores, scores + all_.classes,
                                        [](float s) { return !(s >= 0.0F && s <= 1.0F); });
        return bad - all_.scores;
      }
      double cost = 0;
      for (const double product : products) cost -= std::log(product);
      if (std::isinf(cost)) {  // a score of 1
        cost = 0;
        for (int64_t i = 0; i < all_.classes; ++i) cost -= log_of_miss(scores[i]);
      }
      cost_of_misses_.push_back(cost);
    }
    return -1;
  }

  static double log_of_miss(float score) {
    return std::max(std::log1p(-static_cast<double>(score)), kLeastLogarithm);
  }

  double cost(int32_t box, size_t truth, double overlap, bool in_both) const {
    const auto place = static_cast<size_t>(box);
    const int64_t row = first_prior_ + valid_[place];
    const float score = all_.scores[row * all_.classes + labels_[truth]];
    const double hit = std::max(std::log(static_cast<double>(score)), kLeastLogarithm);
    const double of_class = cost_of_misses_[place] + log_of_miss(score) - hit;
    return of_class * all_.cls_weight - std::log(overlap + all_.least_overlap) * all_.iou_weight +
           (in_both ? 0 : kOutside);
  }

  void match(size_t truth) {
    kernels_.overlaps(boxes_.from(0), static_cast<int64_t>(valid_.size()), truths_[truth],
                      overlaps_.data());
    const size_t wanted = dynamic_k();
    candidates_.clear();
    for (const int32_t prior : in_both_[truth]) add_candidate(truth, prior, true);
    if (!choose(wanted) || !(candidates_[wanted - 1].cost < kOutside / 2)) {
      // Priors outside the box or the centre region are wanted, too.
      std::vector<bool> seen(valid_.size());
      for (const Candidate& each : candidates_) seen[static_cast<size_t>(each.box)] = true;
      for (size_t i = 0; i < valid_.size(); ++i)
        if (!seen[i]) add_candidate(truth, valid_[i], false);
      choose(wanted);
    }
    for (size_t i = 0; i < wanted; ++i) {
      const auto box = static_cast<size_t>(candidates_[i].box);
      if (matches_[box]++ == 0) winners_[box] = static_cast<int32_t>(truth);
    }
  }

  void add_candidate(size_t truth, int32_t prior, bool in_both) {
    const int32_t box = number_[static_cast<size_t>(prior)];
    const double overlap = overlaps_[static_cast<size_t>(box)];
    candidates_.push_back({cost(box, truth, overlap, in_both), box});
  }

  // Puts the cheapest `wanted` candidates first, the dearest of them last. Returns false if there
  // are fewer.
  bool choose(size_t wanted) {
    if (candidates_.size() < wanted) return false;
    const auto last = candidates_.begin() + static_cast<std::ptrdiff_t>(wanted - 1);
    std::nth_element(candidates_.begin(), last, candidates_.end());
    return true;
  }

  // Returns how many priors the truth of `overlaps_` takes: the sum of its highest overlaps,
  // rounded down, at least 1.
  size_t dynamic_k() {
    const auto most = std::min<size_t>(all_.topk, valid_.size());
    highest_.clear();
    double least = -std::numeric_limits<double>::infinity();
    for (const double overlap : overlaps_) {
      if (overlap <= least) continue;
      if (std::isnan(overlap)) return 1;  // PyTorch takes it for the highest, and the sum is NaN
      if (highest_.size() == most) highest_.pop_back();
      highest_.insert(std::upper_bound(highest_.begin(), highest_.end(), overlap, std::greater<>()),
                      overlap);
      if (highest_.size() == most) least = highest_.back();
    }
    double sum = 0;
    for (const double overlap : highest_) sum += overlap;
    return static_cast<size_t>(std::clamp(sum, 1.0, static_cast<double>(valid_.size())));
  }

  // Of several truths that took a prior, returns the one that it costs least, whether that one took
  // it or not. NaN counts as the least, as in torch.min.
  size_t cheapest(size_t box) const {
    size_t winner = 0;
    double least = std::numeric_limits<double>::infinity();
    for (size_t truth = 0; truth < truths_.size(); ++truth) {
      if (!is_real(truths_[truth])) continue;
      std::uint8_t code = 0;
      kernels_.regions(places_.from(static_cast<size_t>(valid_[box])), 1, truths_[truth], &code);
      const double own =
          cost(static_cast<int32_t>(box), truth, overlap(box, truth), code == (kInBox | kInCentre));
      if (std::isnan(own)) return truth;
      if (own < least) {
        least = own;
        winner = truth;
      }
    }
    return winner;
  }

  double overlap(size_t box, size_t truth) const {
    double result = 0;
    kernels_.overlaps(boxes_.from(box), 1, truths_[truth], &result);
    return result;
  }

  void write() const {
    for (size_t box = 0; box < valid_.size(); ++box) {
      if (matches_[box] == 0) continue;
      const auto truth = matches_[box] == 1 ? static_cast<size_t>(winners_[box]) : cheapest(box);
      const int64_t row = first_prior_ + valid_[box];
      all_.winners[row] = static_cast<int64_t>(truth);
      all_.winner_labels[row] = labels_[truth];
      all_.overlaps[row] = static_cast<float>(overlap(box, truth));
    }
  }

  const Kernels& kernels_;
  const paceline_simota& all_;
  const PlaceColumns& places_;
  int64_t first_prior_;
  const int64_t* labels_;
  std::vector<Truth> truths_;
  std::vector<std::vector<int32_t>> in_both_;  // of each truth: priors in its box and centre region
  std::vector<int32_t> valid_;                 // priors
  std::vector<int32_t> number_;                // of each prior: its place in valid_, or -1
  BoxColumns boxes_;                           // of valid priors, as all below
  std::vector<double> cost_of_misses_;         // the cross entropy if no class were right
  std::vector<int32_t> matches_;               // how many truths took it
  std::vector<int32_t> winners_;               // the first of them
  std::vector<double> overlaps_;               // with the truth that is matched
  std::vector<Candidate> candidates_;
  std::vector<double> highest_;
};

}  // namespace

int simota_assign(const Kernels& kernels, paceline_simota& all, int threads) {
  const PlaceColumns places(all);
  std::vector<int64_t> bad(static_cast<size_t>(all.images), -1);
  std::atomic<bool> failed = false;
  base::parallel_for(all.images, threads, [&](int64_t image) {
    try {
      bad[static_cast<size_t>(image)] = Image(kernels, all, places, image).assign();
    } catch (const std::bad_alloc&) {
      failed = true;
    }
  });
  const auto first = std::find_if(bad.begin(), bad.end(), [](int64_t each) { return each >= 0; });
  all.bad_score = first == bad.end() ? -1 : *first;
  if (failed) return PACELINE_ESYSTEM;
  return all.bad_score < 0 ? PACELINE_OK : PACELINE_EINVAL;
}

}  // namespace paceline::ops
