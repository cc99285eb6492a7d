// SPDX-License-Identifier: Apache-2.0
// How the exported functions read and answer an order (struct paceline_order of shards.h). Pure.
#pragma once

#include <cstdint>
#include <new>
#include <span>

#include "loader/order/order.hpp"
#include "paceline/shards.h"

namespace paceline::loader {

inline bool valid(const paceline_order* order) {
  return order != nullptr && order->size == sizeof *order && order->ranks > 0 &&
         order->rank < order->ranks && order->window > 0 &&
         (order->flags & ~(PACELINE_ORDER_SHUFFLE | PACELINE_ORDER_DROP_LAST)) == 0;
}

inline Order order_of(const paceline_order& order) {
  return {.seed = order.seed,
          .epoch = order.epoch,
          .rank = order.rank,
          .ranks = order.ranks,
          .window = order.window,
          .shuffle = (order.flags & PACELINE_ORDER_SHUFFLE) != 0,
          .drop_last = (order.flags & PACELINE_ORDER_DROP_LAST) != 0};
}

struct Places {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};

inline int give_order(std::span<const std::uint64_t> counts, std::uint64_t total,
                      const paceline_order* order, const Places& places, std::uint64_t* samples) {
  if (!valid(order) || samples == nullptr) return PACELINE_EINVAL;
  const Order own = order_of(*order);
  const std::uint64_t length = length_of(own, total);
  if (places.first > length || places.count > length - places.first) return PACELINE_EINVAL;
  try {
    samples_at(own, counts, places.first, {samples, places.count});
    return PACELINE_OK;
  } catch (const std::bad_alloc&) {
    return PACELINE_ESYSTEM;
  }
}

}  // namespace paceline::loader
