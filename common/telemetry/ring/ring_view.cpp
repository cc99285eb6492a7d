// SPDX-License-Identifier: Apache-2.0
#include "common/telemetry/ring/ring_view.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

namespace paceline::telemetry {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr std::size_t kLargestHeader = 65536;
constexpr std::size_t kLargestRecord = 4096;
constexpr std::size_t kBatchBytes = 16 * PACELINE_RECORD_BYTES;
static_assert(kBatchBytes >= kLargestRecord);

std::unexpected<Error> refuse(std::string what) {
  return fail(Code::kInvalid, Origin::kProtocol, "ring refused: " + std::move(what));
}

}  // namespace

Result<RingView> RingView::open(int fd) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals)
    return refuse("it is not a memfd sealed SHRINK, GROW and SEAL");
  struct statfs of{};
  // Huge pages can have seals too, but a rank must not make the reader use the machine's huge
  // pages.
  if (::fstatfs(fd, &of) != 0 || of.f_type != TMPFS_MAGIC)
    return refuse("it is not a memfd of ordinary pages");
  struct stat status{};
  if (::fstat(fd, &status) != 0) return fail_errno("fstat of a ring", errno);
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size < PACELINE_HEADER_BYTES) return refuse("it is smaller than its header");
  if (size > kLargestHeader + kLargestRecord * PACELINE_RING_CAPACITY_MAX)
    return refuse("it is too large");

  RingView view;
  view.fd_.reset(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
  if (!view.fd_.valid()) return fail_errno("dup of a ring", errno);
  view.device_ = status.st_dev;
  view.inode_ = status.st_ino;
  if (!view.read_at(0, &view.claims_, sizeof view.claims_))
    return refuse("its header cannot be read");
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
  if (view.header_bytes_ + view.record_bytes_ * view.capacity_ > size)
    return refuse("its records do not fit its size");
  return view;
}

bool RingView::read_at(std::size_t offset, void* into, std::size_t bytes) const {
  ssize_t got = 0;
  do {
    got = ::pread(fd_.get(), into, bytes, static_cast<off_t>(offset));
  } while (got < 0 && errno == EINTR);
  // Orders this thread's next reads after the kernel's loads.
  std::atomic_thread_fence(std::memory_order_acquire);
  return got == static_cast<ssize_t>(bytes);
}

std::uint64_t RingView::word_at(std::size_t offset) const {
  std::uint64_t word = 0;
  return read_at(offset, &word, sizeof word) ? word : 0;
}

std::uint64_t RingView::write_index() const {
  return word_at(offsetof(paceline_ring_header, write_index));
}

RingView::Sources RingView::sources() const {
  constexpr std::size_t kFrom = offsetof(paceline_ring_header, device_kind);
  constexpr std::size_t kBytes = offsetof(paceline_ring_header, device_number) - kFrom;
  std::array<std::byte, kBytes> bytes{};
  Sources sources;
  if (!read_at(kFrom, bytes.data(), bytes.size())) return sources;
  std::memcpy(&sources.device_kind, bytes.data(), sizeof sources.device_kind);
  std::memcpy(&sources.capabilities,
              bytes.data() + offsetof(paceline_ring_header, capabilities) - kFrom,
              sizeof sources.capabilities);
  return sources;
}

std::uint64_t RingView::heartbeat_ns() const {
  return word_at(offsetof(paceline_ring_header, heartbeat_ns));
}

std::uint64_t RingView::read(std::uint64_t first, std::uint64_t end,
                             const std::function<void(const paceline_step_record&)>& take) const {
  std::array<std::byte, kBatchBytes>
      bytes;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled by each read
  std::uint64_t missed = 0;
  for (std::uint64_t at = first; at < end;) {
    const std::uint64_t count =
        std::min({end - at, kBatchBytes / record_bytes_, capacity_ - at % capacity_});
    if (!read_at(slot_of(at), bytes.data(), count * record_bytes_)) return missed + (end - at);
    const std::uint64_t written = write_index();
    for (std::uint64_t i = 0; i < count; ++i) {
      paceline_step_record record{};
      std::memcpy(&record, bytes.data() + i * record_bytes_, sizeof record);
      const std::uint64_t number = at + i;
      // The writer may be writing record `written` now. If that record shares the slot, the
      // sequence number in the slot tells whether writing has begun; later records have begun for
      // certain.
      const bool whole = record.seq == number + 1 &&
                         (written < number + capacity_ || (written == number + capacity_ &&
                                                           word_at(slot_of(number)) == record.seq));
      if (whole) {
        take(record);
      } else {
        ++missed;
      }
    }
    at += count;
  }
  return missed;
}

bool RingView::live(paceline_live_state& state) const {
  constexpr int kTries = 4;
  constexpr std::size_t kAt = offsetof(paceline_ring_header, live);
  for (int attempt = 0; attempt < kTries; ++attempt) {
    if (!read_at(kAt, &state, sizeof state) || state.version % 2 != 0) continue;
    std::uint32_t after = 0;
    if (read_at(kAt, &after, sizeof after) && after == state.version) return true;
  }
  return false;
}

bool RingView::is_same_file(int fd) const {
  struct stat status{};
  return ::fstat(fd, &status) == 0 && status.st_dev == device_ && status.st_ino == inode_;
}

}  // namespace paceline::telemetry
