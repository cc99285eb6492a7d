// SPDX-License-Identifier: Apache-2.0
// Cuts a list of tensors into chunks of one size, so that threads share the work evenly for any
// sizes of tensors. The order of a sum over a tensor then depends on its size only. A value,
// immutable after construction. The constructor may throw bad_alloc.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels.hpp"
#include "paceline/optim.h"

namespace paceline::optim {

// Starting a thread pays off from about this much work.
inline constexpr std::int64_t kElementsPerThread = std::int64_t{32} * kChunk;

struct Chunk {
  std::size_t tensor;
  std::int64_t begin;
  std::int64_t end;
};

class Chunks {
 public:
  explicit Chunks(std::span<const paceline_optim_tensor> tensors) : tensors_(tensors) {
    first_.reserve(tensors.size() + 1);
    first_.push_back(0);
    for (const auto& tensor : tensors) {
      first_.push_back(first_.back() + tensor.count / kChunk + (tensor.count % kChunk != 0));
      elements_ += tensor.count;
    }
  }

  [[nodiscard]] std::int64_t size() const { return first_.back(); }
  [[nodiscard]] std::int64_t first_of(std::size_t tensor) const { return first_[tensor]; }

  [[nodiscard]] Chunk at(std::int64_t number) const {
    const auto after = std::upper_bound(first_.begin(), first_.end(), number);
    const auto tensor = static_cast<std::size_t>(after - first_.begin()) - 1;
    const std::int64_t begin = (number - first_[tensor]) * kChunk;
    return {tensor, begin, std::min(begin + kChunk, tensors_[tensor].count)};
  }

  [[nodiscard]] int useful_threads(int allowed) const {
    return static_cast<int>(
        std::clamp<std::int64_t>(elements_ / kElementsPerThread, 1, std::max(1, allowed)));
  }

 private:
  std::span<const paceline_optim_tensor> tensors_;
  std::int64_t elements_ = 0;
  std::vector<std::int64_t> first_;  // number of each tensor's first chunk, and one past the last
};

}  // namespace paceline::optim
