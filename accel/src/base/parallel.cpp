// SPDX-License-Identifier: Apache-2.0
#include "base/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

namespace paceline::base {
namespace {

// A range of neighbouring pieces, in a cache line of its own.
struct alignas(64) Share {
  std::atomic<std::int64_t> next;
  std::int64_t end;

  void work_off(const std::function<void(std::int64_t)>& work) {
    for (std::int64_t piece = next.fetch_add(1, std::memory_order_relaxed); piece < end;
         piece = next.fetch_add(1, std::memory_order_relaxed))
      work(piece);
  }
};

std::vector<Share> cut(std::int64_t pieces, std::size_t count) {
  std::vector<Share> shares(count);
  const auto parts = static_cast<std::int64_t>(count);
  std::int64_t begin = 0;
  for (std::int64_t i = 0; i < parts; ++i) {
    shares[static_cast<std::size_t>(i)].next = begin;
    begin += pieces / parts + (i < pieces % parts);
    shares[static_cast<std::size_t>(i)].end = begin;
  }
  return shares;
}

}  // namespace

void parallel_for(std::int64_t pieces, int threads, const std::function<void(std::int64_t)>& work) {
  const auto crew = static_cast<std::size_t>(
      std::clamp<std::int64_t>(threads, 1, std::max<std::int64_t>(pieces, 1)));
  std::vector<Share> shares;
  // The thread's own share first, then the rest of the others' shares.
  const auto run = [&](std::size_t own) {
    for (std::size_t i = 0; i < shares.size(); ++i)
      shares[(own + i) % shares.size()].work_off(work);
  };
  std::vector<std::jthread> helpers;  // joined on return, when this thread finds no more pieces
  try {
    shares = cut(pieces, crew);
    helpers.reserve(crew - 1);
    for (std::size_t own = 1; own < crew; ++own) helpers.emplace_back(run, own);
  } catch (const std::system_error&) {  // most often the container's pids.max
  } catch (const std::bad_alloc&) {
  }
  run(0);
  // If there is no memory for the shares, this thread does all the work.
  if (shares.empty())
    for (std::int64_t piece = 0; piece < pieces; ++piece) work(piece);
}

}  // namespace paceline::base
