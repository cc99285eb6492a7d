// SPDX-License-Identifier: Apache-2.0
#include "common/telemetry/ring_view.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

namespace paceline::telemetry {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr std::size_t kLargestHeader = 65536;
constexpr std::size_t kLargestRecord = 4096;

std::unexpected<Error> refuse(std::string what) {
  return fail(Code::kInvalid, Origin::kProtocol, "ring refused: " + std::move(what));
}

// The writer is another process: every load that races with it is an atomic one.
template <typename T>
T load(const std::byte* at, std::memory_order order = std::memory_order_acquire) {
  return std::atomic_ref<T>(*reinterpret_cast<T*>(const_cast<std::byte*>(at))).load(order);
}

}  // namespace

Result<RingView> RingView::map(int fd) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) return refuse("it is not a memfd sealed SHRINK, GROW and SEAL");
  struct stat status{};
  if (::fstat(fd, &status) != 0) return fail_errno("fstat of a ring", errno);
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size < PACELINE_HEADER_BYTES) return refuse("it is smaller than its header");
  if (size > kLargestHeader + kLargestRecord * PACELINE_RING_CAPACITY_MAX) return refuse("it is too large");
  void* base = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) return fail_errno("mmap of a ring", errno);

  RingView view;
  view.base_ = static_cast<const std::byte*>(base);
  view.bytes_ = size;
  view.device_ = status.st_dev;
  view.inode_ = status.st_ino;
  std::memcpy(&view.claims_, view.base_, sizeof view.claims_);
  const paceline_ring_header& header = view.claims_;
  if (header.magic != PACELINE_RING_MAGIC) return refuse("wrong magic");
  if (header.abi_major != PACELINE_ABI_MAJOR)
    return refuse("ABI major " + std::to_string(header.abi_major) + " is not known here");
  view.header_bytes_ = header.header_bytes;
  view.record_bytes_ = header.record_bytes;
  view.capacity_ = header.capacity;
  if (view.header_bytes_ < PACELINE_HEADER_BYTES || view.header_bytes_ > kLargestHeader ||
      view.header_bytes_ % 64 != 0) {
    return refuse("header_bytes " + std::to_string(view.header_bytes_));
  }
  if (view.record_bytes_ < PACELINE_RECORD_BYTES || view.record_bytes_ > kLargestRecord ||
      view.record_bytes_ % 64 != 0) {
    return refuse("record_bytes " + std::to_string(view.record_bytes_));
  }
  if (view.capacity_ == 0 || view.capacity_ > PACELINE_RING_CAPACITY_MAX)
    return refuse("capacity " + std::to_string(view.capacity_));
  if (view.header_bytes_ + view.record_bytes_ * view.capacity_ > size) return refuse("its records do not fit its size");
  return view;
}

RingView::RingView(RingView&& other) noexcept { *this = std::move(other); }

RingView& RingView::operator=(RingView&& other) noexcept {
  if (this == &other) return *this;
  unmap();
  base_ = std::exchange(other.base_, nullptr);
  bytes_ = other.bytes_;
  header_bytes_ = other.header_bytes_;
  record_bytes_ = other.record_bytes_;
  capacity_ = other.capacity_;
  device_ = other.device_;
  inode_ = other.inode_;
  claims_ = other.claims_;
  return *this;
}

RingView::~RingView() { unmap(); }

void RingView::unmap() {
  if (base_ != nullptr) ::munmap(const_cast<std::byte*>(base_), bytes_);
  base_ = nullptr;
}

std::uint64_t RingView::write_index() const {
  return load<std::uint64_t>(base_ + offsetof(paceline_ring_header, write_index));
}

std::uint64_t RingView::heartbeat_ns() const {
  return load<std::uint64_t>(base_ + offsetof(paceline_ring_header, heartbeat_ns));
}

bool RingView::copy(std::uint64_t number, paceline_step_record& record) const {
  const std::byte* slot = base_ + header_bytes_ + record_bytes_ * (number % capacity_);
  const std::uint64_t expected = number + 1;
  if (load<std::uint64_t>(slot) != expected) return false;
  // Word by word: a plain copy of memory that another process writes would be a data race.
  auto* out = reinterpret_cast<std::byte*>(&record);
  for (std::size_t at = 0; at < sizeof record; at += sizeof(std::uint64_t)) {
    const auto word = load<std::uint64_t>(slot + at, std::memory_order_relaxed);
    std::memcpy(out + at, &word, sizeof word);
  }
  std::atomic_thread_fence(std::memory_order_acquire);
  return load<std::uint64_t>(slot, std::memory_order_relaxed) == expected && record.seq == expected;
}

bool RingView::live(paceline_live_state& state) const {
  constexpr int kTries = 4;
  const std::byte* at = base_ + offsetof(paceline_ring_header, live);
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const auto before = load<std::uint32_t>(at);
    if (before % 2 != 0) continue;
    auto* out = reinterpret_cast<std::byte*>(&state);
    for (std::size_t word = 0; word < sizeof state; word += sizeof(std::uint64_t)) {
      const auto value = load<std::uint64_t>(at + word, std::memory_order_relaxed);
      std::memcpy(out + word, &value, sizeof value);
    }
    std::atomic_thread_fence(std::memory_order_acquire);
    if (load<std::uint32_t>(at, std::memory_order_relaxed) == before) return true;
  }
  return false;
}

bool RingView::is_same_file(int fd) const {
  struct stat status{};
  return ::fstat(fd, &status) == 0 && status.st_dev == device_ && status.st_ino == inode_;
}

}  // namespace paceline::telemetry
