// SPDX-License-Identifier: Apache-2.0
// The shared memory of one loader: for each worker a control block, a ring each way and its slots.
// Mapped once by the maker; forked workers have it at the same address. The file is sparse: only
// what has been written takes memory.
//
// Ownership: the mapping is the object's; destroying it in a forked child unmaps it there only.
// Threads: immutable; what lies in it is synchronised by itself. Failure: open returns null and
// says the errno.
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

// Indices of some thousand samples, or what a batch holds beside its tensors. Larger messages pass
// in pieces.
inline constexpr std::size_t kRingBytes = 256UL * 1024;

struct Control {
  alignas(64) base::Doorbell bell;                 // of the worker
  alignas(64) std::atomic<std::uint32_t> backlog;  // the maker has more to tell than fits
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
