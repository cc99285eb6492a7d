// SPDX-License-Identifier: Apache-2.0
// The functions of batches.h. Each checks its arguments and makes one call; no exception leaves it.
#include <algorithm>
#include <new>
#include <numeric>
#include <span>

#include "loader/order/batches.hpp"
#include "loader/order/order_abi.hpp"
#include "paceline/batches.h"

namespace {

using paceline::loader::Batching;

bool sound(const paceline_batching* batching) {
  constexpr std::uint32_t kKnown =
      PACELINE_BATCHES_SHUFFLE | PACELINE_BATCHES_DROP_LAST | PACELINE_BATCHES_PADDED;
  return batching != nullptr && batching->size == sizeof *batching &&
         (batching->flags & ~kKnown) == 0 && batching->max_tokens > 0 &&
         batching->max_tokens <= UINT32_MAX && batching->max_samples > 0 && batching->pool > 0 &&
         batching->pool <= UINT64_MAX >> 1 && batching->ranks > 0;
}

Batching batching_of(const paceline_batching& batching) {
  return {.seed = batching.seed,
          .epoch = batching.epoch,
          .max_tokens = batching.max_tokens,
          .max_samples = batching.max_samples,
          .pool = batching.pool,
          .ranks = batching.ranks,
          .padded = (batching.flags & PACELINE_BATCHES_PADDED) != 0,
          .shuffle = (batching.flags & PACELINE_BATCHES_SHUFFLE) != 0,
          .drop_last = (batching.flags & PACELINE_BATCHES_DROP_LAST) != 0};
}

}  // namespace

extern "C" {

int paceline_batches_sequence(const uint64_t* counts, uint64_t shards,
                              const struct paceline_order* order, uint64_t* sequence) {
  if (!paceline::loader::valid(order) || (counts == nullptr && shards > 0)) return PACELINE_EINVAL;
  const std::span<const std::uint64_t> sizes(counts, shards);
  const std::uint64_t total = std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0});
  if (sequence == nullptr && total > 0) return PACELINE_EINVAL;
  paceline_order whole = *order;
  whole.rank = 0;
  whole.ranks = 1;
  return total == 0 ? PACELINE_OK
                    : paceline::loader::give_order(sizes, total, &whole, {0, total}, sequence);
}

int paceline_batches_plan(const struct paceline_batching* batching, const uint64_t* lengths,
                          uint64_t total, const uint64_t* sequence, uint64_t count,
                          uint64_t* samples, uint64_t* ends, uint64_t* batches) {
  if (!sound(batching) || samples == nullptr || ends == nullptr || batches == nullptr)
    return PACELINE_EINVAL;
  if ((lengths == nullptr && total > 0) || (sequence == nullptr && count > 0))
    return PACELINE_EINVAL;
  const std::span<const std::uint64_t> all(lengths, total);
  const std::span<const std::uint64_t> wanted(sequence, count);
  const auto good = [&](std::uint64_t sample) {
    return sample < total && all[sample] > 0 && all[sample] <= batching->max_tokens;
  };
  if (!std::ranges::all_of(wanted, good)) return PACELINE_EINVAL;
  try {
    const auto made = paceline::loader::batches_of(batching_of(*batching), all, wanted);
    std::ranges::copy(made.samples, samples);
    std::ranges::copy(made.ends, ends);
    *batches = made.ends.size();
    return PACELINE_OK;
  } catch (const std::bad_alloc&) {
    return PACELINE_ESYSTEM;
  }
}

}  // extern "C"
