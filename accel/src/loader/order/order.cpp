// SPDX-License-Identifier: Apache-2.0
#include "loader/order/order.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "loader/order/random.hpp"

namespace paceline::loader {
namespace {

// The sequence of all ranks together, made one window after the other.
class Sequence {
 public:
  Sequence(const Order& order, std::span<const std::uint64_t> counts)
      : order_(order), counts_(counts), begins_(counts.size()), shards_(counts.size()) {
    std::exclusive_scan(counts.begin(), counts.end(), begins_.begin(), std::uint64_t{0});
    std::iota(shards_.begin(), shards_.end(), std::uint64_t{0});
    if (order.shuffle) permute(std::span(shards_), Random(order.seed, order.epoch, 0));
  }

  std::uint64_t at(std::uint64_t place) {
    if (place < begin_ || place >= begin_ + window_.size()) make_window_of(place);
    return window_[place - begin_];
  }

 private:
  // Earlier windows are counted, not made.
  void make_window_of(std::uint64_t place) {
    const std::size_t width = std::max(order_.window, 1U);
    begin_ = 0;
    for (std::size_t first = 0, number = 1;; first += width, ++number) {
      const auto window =
          std::span(shards_).subspan(first, std::min(width, shards_.size() - first));
      std::uint64_t size = 0;
      for (const std::uint64_t shard : window) size += counts_[shard];
      if (place >= begin_ + size) {
        begin_ += size;
        continue;
      }
      window_.clear();
      for (const std::uint64_t shard : window)
        for (std::uint64_t i = 0; i < counts_[shard]; ++i) window_.push_back(begins_[shard] + i);
      if (order_.shuffle) permute(std::span(window_), Random(order_.seed, order_.epoch, number));
      return;
    }
  }

  const Order& order_;
  std::span<const std::uint64_t> counts_;
  std::vector<std::uint64_t> begins_;
  std::vector<std::uint64_t> shards_;
  std::vector<std::uint64_t> window_;
  std::uint64_t begin_ = 0;  // where the window begins in the sequence
};

}  // namespace

std::uint64_t length_of(const Order& order, std::uint64_t total) {
  const std::uint64_t ranks = std::max(order.ranks, 1U);
  return total / ranks + (!order.drop_last && total % ranks != 0 ? 1 : 0);
}

void samples_at(const Order& order, std::span<const std::uint64_t> counts, std::uint64_t first,
                std::span<std::uint64_t> samples) {
  const std::uint64_t total = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  if (total == 0 || samples.empty()) return;
  Sequence sequence(order, counts);
  const std::uint64_t begin = order.rank * length_of(order, total) + first;
  for (std::size_t i = 0; i < samples.size(); ++i) samples[i] = sequence.at((begin + i) % total);
}

}  // namespace paceline::loader
