// SPDX-License-Identifier: Apache-2.0
// parallel_for, which optimizers and operators share; and how an optimizer's work becomes pieces.
#include "base/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "check.hpp"
#include "chunks.hpp"

namespace {

using paceline::base::parallel_for;
using paceline::optim::Chunks;
using paceline::optim::kElementsPerThread;

// Whether it became so within ten seconds.
template <typename Condition>
bool comes_true(const Condition& condition) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > limit) return false;
    std::this_thread::yield();
  }
  return true;
}

CASE(parallel_every_piece_is_done_once) {
  for (const std::int64_t pieces : {0, 1, 2, 7, 100}) {
    for (const int threads : {1, 2, 3, 7, 130}) {
      std::vector<std::atomic<int>> done(static_cast<std::size_t>(pieces));
      parallel_for(pieces, threads,
                   [&](std::int64_t piece) { ++done[static_cast<std::size_t>(piece)]; });
      CHECK(std::all_of(done.begin(), done.end(), [](const auto& times) { return times == 1; }));
    }
  }
}

CASE(parallel_a_thread_begins_with_neighbouring_pieces_of_its_own) {
  constexpr int kThreads = 4;
  std::mutex mutex;
  std::vector<std::int64_t> firsts;
  std::vector<std::int64_t> seconds;
  std::int64_t callers = -1;
  std::atomic<int> begun{0};
  std::atomic<int> went_on{0};
  std::atomic<int> missed{0};
  const std::thread::id caller = std::this_thread::get_id();
  const auto work = [&](std::int64_t piece) {
    thread_local int number = 0;
    if (++number > 2) return;
    {
      const std::lock_guard lock(mutex);
      (number == 1 ? firsts : seconds).push_back(piece);
      if (number == 1 && std::this_thread::get_id() == caller) callers = piece;
    }
    // Nobody takes a third piece before all have two.
    std::atomic<int>& arrived = number == 1 ? begun : went_on;
    ++arrived;
    missed += !comes_true([&] { return arrived == kThreads; });
  };
  parallel_for(42, kThreads, work);
  std::sort(firsts.begin(), firsts.end());
  std::sort(seconds.begin(), seconds.end());
  CHECK((firsts == std::vector<std::int64_t>{0, 11, 22, 32}));
  CHECK((seconds == std::vector<std::int64_t>{1, 12, 23, 33}));
  CHECK_EQ(callers, 0);
  CHECK_EQ(missed.load(), 0);
}

CASE(parallel_a_thread_that_is_done_helps_the_others) {
  constexpr std::int64_t kPieces = 50;
  // the first piece of either thread
  for (const std::int64_t slow : {std::int64_t{0}, kPieces / 2}) {
    std::atomic<std::int64_t> done{0};
    std::atomic<bool> helped{false};
    parallel_for(kPieces, 2, [&](std::int64_t piece) {
      if (piece == slow) helped = comes_true([&] { return done == kPieces - 1; });
      ++done;
    });
    CHECK(helped);
    CHECK_EQ(done.load(), kPieces);
  }
}

CASE(parallel_threads_are_as_many_as_have_enough_elements) {
  const auto useful = [](std::size_t tensors, std::int64_t elements) {
    paceline_optim_tensor tensor{};
    tensor.count = elements;
    return Chunks(std::vector<paceline_optim_tensor>(tensors, tensor)).useful_threads(4);
  };
  CHECK_EQ(useful(1000, 4), 1);  // each is a chunk
  CHECK_EQ(useful(1, 2 * kElementsPerThread - 1), 1);
  CHECK_EQ(useful(1, 2 * kElementsPerThread), 2);
  CHECK_EQ(useful(30, kElementsPerThread), 4);
}

}  // namespace
