// SPDX-License-Identifier: Apache-2.0
#include "ring_steps.hpp"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "paceline/paceline.h"

namespace paceline::cupti {
namespace {

constexpr std::size_t kWords = PACELINE_RECORD_BYTES / 8;

}  // namespace

bool RingSteps::map(std::uint32_t ring_epoch) {
  if (base_ != nullptr && epoch_ == ring_epoch) return true;
  unmap();
  const int fd = paceline_ring_fd();
  struct stat found{};
  if (fd < 0 || ::fstat(fd, &found) != 0 || found.st_size < PACELINE_HEADER_BYTES) return false;
  const auto bytes = static_cast<std::size_t>(found.st_size);
  void* memory = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return false;
  ::madvise(memory, bytes, MADV_DONTFORK);
  base_ = static_cast<const std::byte*>(memory);
  bytes_ = bytes;
  paceline_ring_header header;
  std::memcpy(&header, base_, sizeof(header));
  capacity_ = header.capacity;
  epoch_ = ring_epoch;
  // The descriptor may have been closed and used again meanwhile.
  const bool whole = header.magic == PACELINE_RING_MAGIC && header.ring_epoch == ring_epoch &&
                     capacity_ > 0 &&
                     bytes_ >= PACELINE_HEADER_BYTES + capacity_ * std::size_t{kWords * 8};
  if (!whole) unmap();
  return whole;
}

void RingSteps::unmap() {
  if (base_ != nullptr) ::munmap(const_cast<std::byte*>(base_), bytes_);
  base_ = nullptr;
}

std::uint64_t RingSteps::published() const {
  const auto* index =
      reinterpret_cast<const std::uint64_t*>(base_ + offsetof(paceline_ring_header, write_index));
  return __atomic_load_n(index, __ATOMIC_ACQUIRE);
}

std::optional<paceline_step_record> RingSteps::record(std::uint64_t index) const {
  const auto* slot = reinterpret_cast<const std::uint64_t*>(
      base_ + PACELINE_HEADER_BYTES + index % capacity_ * PACELINE_RECORD_BYTES);
  if (__atomic_load_n(slot, __ATOMIC_ACQUIRE) != index + 1) return std::nullopt;
  std::array<std::uint64_t, kWords> words;
  for (std::size_t i = 0; i < kWords; ++i) words[i] = __atomic_load_n(slot + i, __ATOMIC_RELAXED);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (__atomic_load_n(slot, __ATOMIC_RELAXED) != index + 1) return std::nullopt;
  paceline_step_record found;
  std::memcpy(&found, words.data(), sizeof(found));
  return found;
}

std::optional<paceline_step_record> RingSteps::step(std::uint64_t number) const {
  if (base_ == nullptr) return std::nullopt;
  const std::uint64_t end = published();
  for (std::uint64_t i = end; i > 0 && end - i < capacity_; --i) {
    const auto found = record(i - 1);
    if (found && found->kind == PACELINE_KIND_STEP && found->step == number) return found;
  }
  return std::nullopt;
}

std::vector<std::uint64_t> RingSteps::newest_walls(std::size_t most) const {
  std::vector<std::uint64_t> walls;
  if (base_ == nullptr) return walls;
  const std::uint64_t end = published();
  for (std::uint64_t i = end; i > 0 && end - i < capacity_ && walls.size() < most; --i) {
    const auto found = record(i - 1);
    if (found && found->kind == PACELINE_KIND_STEP && (found->flags & PACELINE_FLAG_FINAL) == 0)
      walls.push_back(found->wall_ns);
  }
  return walls;
}

}  // namespace paceline::cupti
