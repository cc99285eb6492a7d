// SPDX-License-Identifier: Apache-2.0
// Arrays of more than 2³¹ bytes. Most of their pages are the same memory, mapped many times. They
// take seconds, and minutes under sanitizers, so they run only if PACELINE_TEST_LARGE is set.
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

#include "check.hpp"
#include "comm/world.hpp"

namespace {

using paceline::comm_test::Member;
using paceline::comm_test::World;

constexpr std::size_t kPage = 16UL << 20;
constexpr std::size_t kPages = 129;
constexpr std::size_t kWhole = kPage * kPages;
static_assert(kWhole > 1UL << 31);

// All pages but the last are the same memory.
class LargeArray {
 public:
  explicit LargeArray(int value)
      : base_(static_cast<std::byte*>(::mmap(nullptr, kWhole, PROT_NONE,
                                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))),
        file_(::memfd_create("large", MFD_CLOEXEC)) {
    if (::ftruncate(file_, 2 * kPage) != 0) std::abort();
    for (std::size_t i = 0; i < kPages; ++i) {
      const off_t from = i + 1 == kPages ? kPage : 0;
      ::mmap(base_ + i * kPage, kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file_, from);
    }
    std::fill_n(reinterpret_cast<std::int32_t*>(base_ + kWhole - kPage), kPage / 4, value);
  }
  ~LargeArray() {
    ::munmap(base_, kWhole);
    ::close(file_);
  }
  LargeArray(const LargeArray&) = delete;
  LargeArray& operator=(const LargeArray&) = delete;

  void* data() { return base_; }
  // Zeros, but for `value` at the end.
  bool is(std::int32_t value) const {
    const auto* const all = reinterpret_cast<const std::int32_t*>(base_);
    const auto* const end = all + kWhole / 4;
    const auto* const last = end - kPage / 4;
    return std::all_of(all, all + kPage / 4, [](std::int32_t one) { return one == 0; }) &&
           std::all_of(last, end, [&](std::int32_t one) { return one == value; });
  }

 private:
  std::byte* base_;
  int file_;
};

bool moves_large_arrays(Member& member) {
  constexpr std::uint64_t kCount = kWhole / 4;
  const auto own = static_cast<std::int32_t>(member.rank) + 5;
  LargeArray one(own);
  bool good =
      paceline_comm_all_reduce(member.comm, one.data(), kCount, PACELINE_COMM_I32) == PACELINE_OK &&
      one.is(11);
  LargeArray other(0);
  const std::uint32_t peer = 1 - member.rank;
  good = paceline_comm_exchange(member.comm, LargeArray(own).data(), kCount, peer, other.data(),
                                kCount, peer, PACELINE_COMM_I32) == PACELINE_OK &&
         other.is(peer == 0 ? 5 : 6) && good;
  good = paceline_comm_broadcast(member.comm, one.data(), kCount, PACELINE_COMM_I32, 1) ==
             PACELINE_OK &&
         one.is(11) && good;
  if (!good) std::cerr << "rank " << member.rank << " has something else\n";
  return good;
}

}  // namespace

CASE(comm_arrays_of_more_than_2_gib_go_as_others_do) {
  if (std::getenv("PACELINE_TEST_LARGE") == nullptr) return;
  CHECK_EQ(World::run({.hosts = {0, 0}, .plan = "algorithm=hierarchical"}, moves_large_arrays), 0);
  CHECK_EQ(World::run({.hosts = {0, 1}, .plan = "algorithm=flat"}, moves_large_arrays), 0);
}
