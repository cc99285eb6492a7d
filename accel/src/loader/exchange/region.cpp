// SPDX-License-Identifier: Apache-2.0
#include "loader/exchange/region.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace paceline::loader {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kHeader = kPage;
constexpr std::size_t kControl = (sizeof(Control) + kPage - 1) / kPage * kPage;
constexpr std::size_t kPart = kControl + 2 * kRingBytes;
static_assert(sizeof(Header) <= kHeader);

std::size_t rounded(std::uint64_t slot_bytes) { return (slot_bytes + kPage - 1) / kPage * kPage; }

// Returns the size of the file, or 0 if a number is out of range.
std::size_t size_of(std::uint32_t workers, std::uint32_t slots, std::uint64_t slot_bytes) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 46;  // bytes of address space
  if (workers == 0 || workers > PACELINE_LOADER_MAX_WORKERS || slots == 0 ||
      slots > PACELINE_LOADER_MAX_SLOTS || slot_bytes == 0 || slot_bytes > kMost / workers / slots)
    return 0;
  return kHeader + workers * (kPart + slots * rounded(slot_bytes));
}

}  // namespace

Region::Region(std::byte* base, std::size_t size, std::uint32_t workers, std::uint32_t slots,
               std::size_t slot_bytes)
    : base_(base), size_(size), workers_(workers), slots_(slots), slot_bytes_(slot_bytes) {}

Region::~Region() { ::munmap(base_, size_); }

std::unique_ptr<Region> Region::open(std::uint32_t workers, std::uint32_t slots,
                                     std::uint64_t slot_bytes, base::Fd& file, int& error) {
  const std::size_t size = size_of(workers, slots, slot_bytes);
  error = EINVAL;
  if (size == 0) return nullptr;
  // MFD_CLOEXEC
  base::Fd made(static_cast<int>(::syscall(SYS_memfd_create, "paceline-loader", 0x1U)));
  if (!made || ::ftruncate(made.get(), static_cast<off_t>(size)) != 0) {
    error = errno;
    return nullptr;
  }
  file = std::move(made);
  return attach(file.get(), workers, slots, slot_bytes, error);
}

std::unique_ptr<Region> Region::attach(int file, std::uint32_t workers, std::uint32_t slots,
                                       std::uint64_t slot_bytes, int& error) {
  const std::size_t size = size_of(workers, slots, slot_bytes);
  struct stat found{};
  if (size != 0 && ::fstat(file, &found) != 0) {
    error = errno;
    return nullptr;
  }
  // Beyond the end of a shorter file, every access would be a bus error.
  if (size == 0 || static_cast<std::size_t>(found.st_size) != size) {
    error = EINVAL;
    return nullptr;
  }
  void* base = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  error = base == MAP_FAILED ? errno : 0;
  if (base == MAP_FAILED) return nullptr;
  ::madvise(base, size, MADV_DONTDUMP);  // keeps batches out of core files
  // Cursors, bells and slots all begin as zeros, and so does the file.
  return std::unique_ptr<Region>(
      new Region(static_cast<std::byte*>(base), size, workers, slots, rounded(slot_bytes)));
}

std::byte* Region::part(std::uint32_t worker) const {
  return base_ + kHeader + worker * (kPart + slots_ * slot_bytes_);
}

base::ByteRing Region::down(std::uint32_t worker) const {
  return {control(worker).down, part(worker) + kControl, kRingBytes};
}

base::ByteRing Region::up(std::uint32_t worker) const {
  return {control(worker).up, part(worker) + kControl + kRingBytes, kRingBytes};
}

std::byte* Region::slot(std::uint32_t worker, std::uint32_t slot) const {
  return part(worker) + kPart + slot * slot_bytes_;
}

}  // namespace paceline::loader
