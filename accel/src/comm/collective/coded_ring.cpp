// SPDX-License-Identifier: Apache-2.0
#include "comm/collective/coded_ring.hpp"

#include <algorithm>

namespace paceline::comm {

std::vector<std::size_t> CodedRing::places(std::uint64_t count) const {
  const bool parts = recoded_on_the_way(coding_.codec);
  std::vector<std::size_t> all{0};
  for (std::uint32_t i = 0; i < ranks_; ++i)
    all.push_back(all.back() +
                  coded_bytes(coding_, parts ? part_of(count, ranks_, i).count : count));
  return all;
}

std::size_t CodedRing::bytes(std::uint64_t count) const { return places(count).back(); }

std::uint64_t CodedRing::steps() const {
  return (recoded_on_the_way(coding_.codec) ? 2 : 1) * (std::uint64_t{ranks_} - 1);
}

void CodedRing::begin(const float* own, float* residual, std::byte* buffer,
                      std::uint64_t count) const {
  const bool parts = recoded_on_the_way(coding_.codec);
  const Part part = parts ? part_of(count, ranks_, position_) : Part{.begin = 0, .count = count};
  encode(coding_, own + part.begin, residual + part.begin, buffer + places(count)[position_],
         part.count);
}

void CodedRing::add_steps(std::vector<Step>& steps, const float* own, float* residual,
                          std::byte* buffer, std::uint64_t count, std::uint64_t gate) const {
  const std::vector<std::size_t> at = places(count);
  const bool parts = recoded_on_the_way(coding_.codec);
  const std::uint32_t n = ranks_;
  for (std::uint32_t s = 0; s < this->steps(); ++s) {
    const std::uint32_t out = (position_ + 2 * n - s) % n;
    const std::uint32_t in = (position_ + 2 * n - s - 1) % n;
    const bool added = parts && s < n - 1;
    const std::uint64_t begin = part_of(count, n, in).begin;
    const auto index = static_cast<std::int64_t>(steps.size());
    steps.push_back({.out = buffer + at[out],
                     .out_bytes = at[out + 1] - at[out],
                     .after = s == 0 ? -1 : index - 1,
                     .in = buffer + at[in],
                     .over = !parts || s < n - 1 ? -1 : index + 1 - n,
                     .in_bytes = at[in + 1] - at[in],
                     .own = added ? reinterpret_cast<const std::byte*>(own + begin) : nullptr,
                     .gate = gate,
                     .coding = added ? &coding_ : nullptr,
                     .residual = added ? residual + begin : nullptr});
  }
}

void CodedRing::end(const std::byte* buffer, float* sum, std::uint64_t count) const {
  const std::vector<std::size_t> at = places(count);
  if (recoded_on_the_way(coding_.codec)) {
    for (std::uint32_t i = 0; i < ranks_; ++i) {
      const Part part = part_of(count, ranks_, i);
      decode(coding_, buffer + at[i], sum + part.begin, part.count);
    }
    return;
  }
  std::fill_n(sum, count, 0.0F);
  for (std::uint32_t i = 0; i < ranks_; ++i) decode_add(coding_, buffer + at[i], sum, count);
}

}  // namespace paceline::comm
