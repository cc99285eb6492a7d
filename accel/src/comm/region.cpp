// SPDX-License-Identifier: Apache-2.0
#include "region.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cerrno>

namespace paceline::comm {

std::size_t Region::bytes(std::uint32_t ranks, std::size_t chunk) {
  return ranks * kPart + (ranks + std::size_t{1}) * kDepth * chunk;
}

Fd Region::create(std::uint32_t ranks, std::size_t chunk) {
  constexpr unsigned kCloseOnExec = 1;  // MFD_CLOEXEC
  Fd file(static_cast<int>(::syscall(SYS_memfd_create, "paceline-comm", kCloseOnExec)));
  if (file && ::ftruncate(file.get(), static_cast<off_t>(bytes(ranks, chunk))) != 0) return {};
  return file;
}

std::unique_ptr<Region> Region::map(const Fd& file, std::uint32_t ranks, std::size_t chunk) {
  const std::size_t size = bytes(ranks, chunk);
  struct stat told{};
  if (::fstat(file.get(), &told) != 0) return nullptr;
  // A smaller file than this rank expects would end it with SIGBUS.
  if (static_cast<std::size_t>(told.st_size) < size) {
    errno = EPROTO;
    return nullptr;
  }
  void* base = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file.get(), 0);
  if (base == MAP_FAILED) return nullptr;
  ::madvise(base, size, MADV_DONTDUMP);
  return std::unique_ptr<Region>(new Region(static_cast<std::byte*>(base), ranks, chunk));
}

Region::~Region() { ::munmap(base_, bytes(ranks_, chunk_)); }

}  // namespace paceline::comm
