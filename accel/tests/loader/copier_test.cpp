// SPDX-License-Identifier: Apache-2.0
// Copies in the background: all bytes, in order, finished before the copier ends; nothing of it in
// a forked child.
#include "paceline/copier.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <thread>
#include <vector>

#include "check.hpp"

namespace {

constexpr int kLongWait = 20'000;  // ms: longer than any test may wait

struct Copying {
  Copying() {
    if (paceline_copier_create(&it) != PACELINE_OK) std::abort();
  }
  ~Copying() { paceline_copier_destroy(it); }
  Copying(const Copying&) = delete;
  Copying& operator=(const Copying&) = delete;
  paceline_copier* it = nullptr;
};

std::vector<std::uint32_t> counted(std::size_t size, std::uint32_t first) {
  std::vector<std::uint32_t> numbers(size);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

}  // namespace

CASE(copies_come_whole_and_in_order) {
  const Copying copying;
  // Each overwrites what the one before it has written: the last one stays only if they are made in
  // order.
  std::vector<std::uint32_t> target(1 << 18);
  std::vector<std::vector<std::uint32_t>> sources;
  for (std::uint32_t i = 0; i < 20; ++i) sources.push_back(counted(target.size(), i));
  std::uint64_t copy = 0;
  for (std::uint32_t i = 0; i < sources.size(); ++i) {
    CHECK_EQ(paceline_copier_begin(copying.it, target.data(), sources[i].data(), target.size() * 4,
                                   &copy),
             PACELINE_OK);
    CHECK_EQ(copy, std::uint64_t{i} + 1);
  }
  CHECK_EQ(paceline_copier_wait(copying.it, copy, kLongWait), PACELINE_OK);
  CHECK(target == sources.back());
  CHECK_EQ(paceline_copier_wait(copying.it, 0, 0), PACELINE_OK);
  CHECK_EQ(paceline_copier_wait(copying.it, copy + 1, 1), PACELINE_COPIER_NOT_YET);
}

CASE(a_copier_that_ends_has_finished_what_was_begun) {
  const std::vector<std::uint32_t> source = counted(1 << 22, 7);
  std::vector<std::uint32_t> target(source.size());
  {
    const Copying copying;
    std::uint64_t copy = 0;
    for (std::size_t part = 0; part < source.size(); part += source.size() / 8)
      CHECK_EQ(paceline_copier_begin(copying.it, target.data() + part, source.data() + part,
                                     source.size() / 8 * 4, &copy),
               PACELINE_OK);
  }
  CHECK(target == source);
}

CASE(several_threads_may_copy_and_wait) {
  const Copying copying;
  const std::vector<std::uint32_t> source = counted(4096, 3);
  std::vector<std::vector<std::uint32_t>> targets(4, std::vector<std::uint32_t>(source.size()));
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  threads.reserve(targets.size());
  for (std::vector<std::uint32_t>& target : targets)
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        target.assign(target.size(), 0);
        std::uint64_t copy = 0;
        const bool done = paceline_copier_begin(copying.it, target.data(), source.data(),
                                                source.size() * 4, &copy) == PACELINE_OK &&
                          paceline_copier_wait(copying.it, copy, kLongWait) == PACELINE_OK;
        if (!done || target != source) ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(wrong.load(), 0);
}

CASE(a_forked_child_has_no_copier) {
  const Copying copying;
  const pid_t child = ::fork();
  if (child == 0) {
    std::uint64_t copy = 0;
    std::uint32_t number = 0;
    const bool refused =
        paceline_copier_begin(copying.it, &number, &copy, 4, &copy) == PACELINE_EINVAL &&
        paceline_copier_wait(copying.it, 1, kLongWait) == PACELINE_EINVAL;
    paceline_copier_destroy(copying.it);  // returns, though there is no thread to join
    ::_exit(refused ? 0 : 1);
  }
  int status = -1;
  CHECK_EQ(::waitpid(child, &status, 0), child);
  CHECK_EQ(status, 0);
}

CASE(arguments_of_a_copy_are_checked) {
  const Copying copying;
  std::uint64_t copy = 0;
  std::uint32_t number = 0;
  CHECK_EQ(paceline_copier_create(nullptr), PACELINE_EINVAL);
  CHECK_EQ(paceline_copier_begin(nullptr, &number, &number, 4, &copy), PACELINE_EINVAL);
  CHECK_EQ(paceline_copier_begin(copying.it, nullptr, &number, 4, &copy), PACELINE_EINVAL);
  CHECK_EQ(paceline_copier_begin(copying.it, &number, nullptr, 4, &copy), PACELINE_EINVAL);
  CHECK_EQ(paceline_copier_begin(copying.it, &number, &number, 4, nullptr), PACELINE_EINVAL);
  CHECK_EQ(paceline_copier_wait(nullptr, 0, 0), PACELINE_EINVAL);
  paceline_copier_destroy(nullptr);
}
