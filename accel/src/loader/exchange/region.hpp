// SPDX-License-Identifier: Apache-2.0
// The shared memory of one loader. Each worker has a control block, a ring in each direction, and
// its slots. The maker maps it once, and forked workers have it at the same address. Other workers
// map its file elsewhere, so the contents hold no addresses. The file is sparse: only written pages
// take memory.
//
// Ownership: the object owns the mapping, and no descriptor. Destroying it in a worker unmaps it
// there only. Threads: the object is immutable; the shared contents synchronise themselves.
// Failure: open and attach return null and set the errno.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/byte_ring.hpp"
#include "base/doorbell.hpp"
#include "base/fd.hpp"
#include "paceline/loader.h"

namespace paceline::loader {

// Room for the indices of some thousand samples, or for the parts of a batch that are no tensors.
// Larger messages pass in pieces.
inline constexpr std::size_t kRingBytes = 256UL * 1024;

struct Header {
  base::Doorbell bell;  // wakes the maker
  alignas(64) std::uint32_t word;
};

struct Control {
  alignas(64) base::Doorbell bell;                 // wakes the worker
  alignas(64) std::atomic<std::uint32_t> backlog;  // 1: the maker has more to send
  base::RingCursors down;                          // maker to worker
  base::RingCursors up;
  alignas(64) std::array<std::atomic<std::uint32_t>, PACELINE_LOADER_MAX_SLOTS> taken;
};

class Region {
 public:
  static std::unique_ptr<Region> open(std::uint32_t workers, std::uint32_t slots,
                                      std::uint64_t slot_bytes, base::Fd& file, int& error);
  static std::unique_ptr<Region> attach(int file, std::uint32_t workers, std::uint32_t slots,
                                        std::uint64_t slot_bytes, int& error);
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  ~Region();

  std::uint32_t workers() const { return workers_; }
  std::uint32_t slots() const { return slots_; }
  base::Doorbell& makers_bell() const { return header().bell; }
  std::uint32_t* word() const { return &header().word; }
  Control& control(std::uint32_t worker) const { return *reinterpret_cast<Control*>(part(worker)); }
  base::ByteRing down(std::uint32_t worker) const;
  base::ByteRing up(std::uint32_t worker) const;
  std::byte* slot(std::uint32_t worker, std::uint32_t slot) const;

 private:
  Header& header() const { return *reinterpret_cast<Header*>(base_); }
  Region(std::byte* base, std::size_t size, std::uint32_t workers, std::uint32_t slots,
         std::size_t slot_bytes);
  std::byte* part(std::uint32_t worker) const;

  std::byte* base_;
  std::size_t size_;
  std::uint32_t workers_;
  std::uint32_t slots_;
  std::size_t slot_bytes_;
};

}  // namespace paceline::loader
