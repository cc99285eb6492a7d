// SPDX-License-Identifier: Apache-2.0
#include "parallel.hpp"

#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>
#include <vector>

namespace paceline::optim {

void parallel_for(std::int64_t pieces, int threads, const std::function<void(std::int64_t)>& work) {
  std::atomic<std::int64_t> next{0};
  const auto run = [&] {
    for (std::int64_t piece = next.fetch_add(1, std::memory_order_relaxed); piece < pieces;
         piece = next.fetch_add(1, std::memory_order_relaxed))
      work(piece);
  };
  const auto helpers = std::max<std::int64_t>(0, std::min<std::int64_t>(threads, pieces) - 1);
  std::vector<std::jthread> started;  // joined at the end, after this thread has run out of pieces
  try {
    started.reserve(static_cast<std::size_t>(helpers));
    for (std::int64_t i = 0; i < helpers; ++i) started.emplace_back(run);
  } catch (const std::system_error&) {  // pids.max of the container, most often
  } catch (const std::bad_alloc&) {
  }
  run();
}

}  // namespace paceline::optim
