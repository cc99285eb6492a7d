// SPDX-License-Identifier: Apache-2.0
// What the loader's exported functions share: the handles behind their opaque types, and how a
// reason and an order get out. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string>

#include "order.hpp"
#include "paceline/shards.h"
#include "shards.hpp"

struct paceline_shards {
  std::unique_ptr<paceline::loader::Shards> it;
};

namespace paceline::loader {

inline void say(const std::string& text, char* why, std::uint64_t size) {
  if (why == nullptr || size == 0) return;
  const std::size_t count = std::min<std::size_t>(text.size(), size - 1);
  std::memcpy(why, text.data(), count);
  why[count] = '\0';
}

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
