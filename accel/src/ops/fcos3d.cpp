// SPDX-License-Identifier: Apache-2.0
#include "fcos3d.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <memory>
#include <new>
#include <vector>

#include "base/parallel.hpp"

namespace paceline::ops {
namespace {

using std::int32_t;
using std::int64_t;

constexpr float kDiagonal = 1.414F;  // the original's square root of two
constexpr int32_t kNone = -1;
constexpr int64_t kRowsPerThread = 200'000;  // fewer are written sooner than a thread starts

// The points of a level, if they are all pairs of some x and some y, row by row and ascending. So
// the points of a region are found without a look at the others.
struct Lattice {
  std::vector<float> xs, ys;  // empty if the points lie in another way
};

bool ascending(const std::vector<float>& values) {
  return std::adjacent_find(values.begin(), values.end(),
                            [](float a, float b) { return !(a < b); }) == values.end();
}

Lattice lattice_of(const float* points, int64_t count) {
  if (count == 0) return {};
  int64_t width = 1;
  while (width < count && points[2 * width + 1] == points[1]) ++width;
  if (count % width != 0) return {};
  Lattice lattice;
  for (int64_t x = 0; x < width; ++x) lattice.xs.push_back(points[2 * x]);
  for (int64_t y = 0; y < count; y += width) lattice.ys.push_back(points[2 * y + 1]);
  // NaN is not equal to itself, and so is not on a lattice.
  for (std::size_t y = 0; y < lattice.ys.size(); ++y) {
    const float* row = points + 2 * static_cast<int64_t>(y) * width;
    bool same = true;
    for (int64_t x = 0; x < width; ++x)
      same &= row[2 * x] == points[2 * x] && row[2 * x + 1] == lattice.ys[y];
    if (!same) return {};
  }
  if (!ascending(lattice.xs) || !ascending(lattice.ys)) return {};
  return lattice;
}

// One image on one level.
class Matcher {
 public:
  Matcher(const paceline_fcos3d& all, const paceline_fcos3d_level& level, int64_t image)
      : all_(all),
        level_(level),
        image_(image),
        winners_(static_cast<std::size_t>(level.count), kNone),
        distances_(std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(level.count))) {
  }

  void match(const Lattice& lattice) {
    for (int64_t truth = all_.offsets[image_]; truth < all_.offsets[image_ + 1]; ++truth) {
      const float* box = all_.boxes + 4 * truth;
      // A box with NaN has no longest side, so it is in no level's range.
      if (std::any_of(box, box + 4, [](float side) { return std::isnan(side); })) continue;
      if (lattice.xs.empty())
        visit_all(truth);
      else
        visit_region(truth, lattice);
    }
  }

  void write() const {
    const int64_t first = image_ * level_.count;
    int64_t* labels = level_.labels + first;
    int64_t* attributes = level_.attributes + first;
    float* targets = level_.targets + first * all_.columns;
    float* centerness = level_.centerness + first;
    std::fill_n(labels, level_.count, all_.background);
    std::fill_n(attributes, level_.count, all_.no_attribute);
    std::fill_n(targets, level_.count * all_.columns, 0.0F);
    std::fill_n(centerness, level_.count, 0.0F);
    for (const int32_t point : matched_) {
      const auto place = static_cast<std::size_t>(point);
      const int64_t truth = all_.offsets[image_] + winners_[place];
      labels[point] = all_.labels[truth];
      attributes[point] = all_.attributes[truth];
      float* row = targets + int64_t{point} * all_.columns;
      row[0] = (level_.points[2 * place] - all_.centers[2 * truth]) / level_.divisor;
      row[1] = (level_.points[2 * place + 1] - all_.centers[2 * truth + 1]) / level_.divisor;
      std::copy_n(all_.rest + truth * (all_.columns - 2), all_.columns - 2, row + 2);
      const float off = distances_[place] / (kDiagonal * level_.radius);
      centerness[point] = std::exp(-all_.alpha * off);
    }
  }

 private:
  void visit_region(int64_t truth, const Lattice& lattice) {
    const float x = all_.centers[2 * truth];
    const float y = all_.centers[2 * truth + 1];
    if (std::isnan(x) || std::isnan(y)) return;
    const auto inside = [this](const std::vector<float>& values, float center) {
      const auto begin = std::upper_bound(values.begin(), values.end(), center - level_.radius);
      const auto end = std::lower_bound(begin, values.end(), center + level_.radius);
      return std::pair{begin - values.begin(), end - values.begin()};
    };
    const auto [left, right] = inside(lattice.xs, x);
    const auto [top, bottom] = inside(lattice.ys, y);
    const auto width = static_cast<int64_t>(lattice.xs.size());
    for (int64_t row = top; row < bottom; ++row)
      for (int64_t column = left; column < right; ++column) visit(truth, row * width + column);
  }

  void visit_all(int64_t truth) {
    const float left = all_.centers[2 * truth] - level_.radius;
    const float right = all_.centers[2 * truth] + level_.radius;
    const float top = all_.centers[2 * truth + 1] - level_.radius;
    const float bottom = all_.centers[2 * truth + 1] + level_.radius;
    for (int64_t point = 0; point < level_.count; ++point) {
      const float x = level_.points[2 * point];
      const float y = level_.points[2 * point + 1];
      if (x > left && x < right && y > top && y < bottom) visit(truth, point);
    }
  }

  // `point` lies in the region of the truth's centre.
  void visit(int64_t truth, int64_t point) {
    const float x = level_.points[2 * point];
    const float y = level_.points[2 * point + 1];
    const float* box = all_.boxes + 4 * truth;
    const float longest = std::max({x - box[0], y - box[1], box[2] - x, box[3] - y});
    if (!(longest >= level_.low && longest <= level_.high)) return;
    const float off_x = x - all_.centers[2 * truth];
    const float off_y = y - all_.centers[2 * truth + 1];
    // Roots are compared, as the original does: different squares may have the same root, and then
    // the first truth wins.
    const float distance = std::sqrt(off_x * off_x + off_y * off_y);
    const auto place = static_cast<std::size_t>(point);
    if (winners_[place] == kNone)
      matched_.push_back(static_cast<int32_t>(point));
    else if (!(distance < distances_[place]))
      return;
    winners_[place] = static_cast<int32_t>(truth - all_.offsets[image_]);
    distances_[place] = distance;
  }

  const paceline_fcos3d& all_;
  const paceline_fcos3d_level& level_;
  int64_t image_;
  std::vector<int32_t> winners_;        // of each point: number of the image's truth, or kNone
  std::vector<int32_t> matched_;        // points that have one
  std::unique_ptr<float[]> distances_;  // to its centre, where there is one
};

}  // namespace

int fcos3d_targets(const paceline_fcos3d& all, int threads) {
  std::vector<Lattice> lattices;
  int64_t rows = 0;
  for (std::uint32_t i = 0; i < all.levels; ++i) {
    lattices.push_back(lattice_of(all.level[i].points, all.level[i].count));
    rows += all.level[i].count * all.images;
  }
  const auto useful = static_cast<int>(std::min<int64_t>(threads, 1 + rows / kRowsPerThread));
  std::atomic<bool> failed = false;
  // Level after level, so that the largest pieces come first.
  base::parallel_for(all.images * all.levels, useful, [&](int64_t piece) {
    const auto level = static_cast<std::size_t>(piece / all.images);
    try {
      Matcher matcher(all, all.level[level], piece % all.images);
      matcher.match(lattices[level]);
      matcher.write();
    } catch (const std::bad_alloc&) {
      failed = true;
    }
  });
  return failed ? PACELINE_ESYSTEM : PACELINE_OK;
}

}  // namespace paceline::ops
