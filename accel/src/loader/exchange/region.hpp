// SPDX-License-Identifier: Apache-2.0
// The shared memory of one loader. Each worker has a control block, a ring in each direction, and
// its slots. The maker maps it once, and forked workers have it at the same address. The file is
// sparse: only written pages take memory.
//
// Ownership: the object owns the mapping. Destroying it in a forked child unmaps it in the child
// only. Threads: the object is immutable; the shared contents synchronise themselves. Failure: open
// returns null and sets the errno.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/byte_ring.hpp"
#include "base/doorbell.hpp"
#include "paceline/loader.h"

namespace paceline::loader {

// Room for the indices of some thousand samples, or for the parts of a batch that are no tensors.
// Larger messages pass in pieces.
inline constexpr std::size_t kRingBytes = 256UL * 1024;

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
                                      std::uint64_t slot_bytes, int& error);
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  ~Region();

  std::uint32_t workers() const { return workers_; }
  std::uint32_t slots() const { return slots_; }
  base::Doorbell& makers_bell() const { return *reinterpret_cast<base::Doorbell*>(base_); }
  Control& control(std::uint32_t worker) const { return *reinterpret_cast<Control*>(part(worker)); }
  base::ByteRing down(std::uint32_t worker) const;
  base::ByteRing up(std::uint32_t worker) const;
  std::byte* slot(std::uint32_t worker, std::uint32_t slot) const;

 private:
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
