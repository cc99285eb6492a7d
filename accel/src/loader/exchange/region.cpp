// SPDX-License-Identifier: Apache-2.0
#include "loader/exchange/region.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <limits>

#include "base/fd.hpp"

namespace paceline::loader {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kHeader = kPage;
constexpr std::size_t kControl = (sizeof(Control) + kPage - 1) / kPage * kPage;
constexpr std::size_t kPart = kControl + 2 * kRingBytes;

}  // namespace

Region::Region(std::byte* base, std::size_t size, std::uint32_t workers, std::uint32_t slots,
               std::size_t slot_bytes)
    : base_(base), size_(size), workers_(workers), slots_(slots), slot_bytes_(slot_bytes) {}

Region::~Region() { ::munmap(base_, size_); }

std::unique_ptr<Region> Region::open(std::uint32_t workers, std::uint32_t slots,
                                     std::uint64_t slot_bytes, int& error) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 46;  // bytes of address space
  if (workers == 0 || workers > PACELINE_LOADER_MAX_WORKERS || slots == 0 ||
      slots > PACELINE_LOADER_MAX_SLOTS || slot_bytes == 0 ||
      slot_bytes > kMost / workers / slots) {
    error = EINVAL;
    return nullptr;
  }
  const std::size_t rounded = (slot_bytes + kPage - 1) / kPage * kPage;
  const std::size_t size = kHeader + workers * (kPart + slots * rounded);
  // MFD_CLOEXEC
  const base::Fd fd(static_cast<int>(::syscall(SYS_memfd_create, "paceline-loader", 0x1U)));
  if (!fd) {
    error = errno;
    return nullptr;
  }
  void* base = MAP_FAILED;
  if (::ftruncate(fd.get(), static_cast<off_t>(size)) == 0)
    base = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd.get(), 0);
  error = base == MAP_FAILED ? errno : 0;
  if (base == MAP_FAILED) return nullptr;
  ::madvise(base, size, MADV_DONTDUMP);  // keeps batches out of core files
  // Cursors, bells and slots all begin as zeros, and so does the file.
  return std::unique_ptr<Region>(
      new Region(static_cast<std::byte*>(base), size, workers, slots, rounded));
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
