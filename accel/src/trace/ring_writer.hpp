// SPDX-License-Identifier: Apache-2.0
// The writing side of a ring (paceline/step_record.h): a sealed memfd, mapped. It has one writer,
// which overwrites the oldest record.
//
// Owns the memfd and the mapping. One thread calls `publish` and `beat`. One other thread at a
// time, under the lock of the caller, calls `set_live`. The two sides touch different cache lines.
// Nothing blocks. `open` returns null and an errno if the system refuses (no memfd, no memory).
// Nothing fails afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/fd.hpp"
#include "paceline/sources.h"
#include "paceline/step_record.h"

namespace paceline::trace {

class RingWriter {
 public:
  /// Makes a ring whose header is `header`, and fills in magic, layout and counters. Returns null
  /// and an errno on failure.
  static std::unique_ptr<RingWriter> open(const paceline_ring_header& header, int& error);
  ~RingWriter();
  RingWriter(const RingWriter&) = delete;
  RingWriter& operator=(const RingWriter&) = delete;

  int fd() const { return fd_.get(); }
  std::uint64_t published() const { return next_; }
  void publish(const paceline_step_record& record);
  void beat(std::uint64_t now_ns);
  void set_live(std::uint32_t phase, std::uint64_t since_ns, std::uint64_t step);
  /// Tells readers which device computes. One thread at a time may call it.
  void set_device(std::uint32_t kind, std::uint32_t number, const char* pci_address);
  /// Adds capability bits. A source of measurements may start after the ring was opened.
  void announce(std::uint64_t capabilities);
  /// Takes capability bits back: a source has ended.
  void withdraw(std::uint64_t capabilities);
  /// Like set_live, another part of the live state. One thread at a time calls either.
  void set_collective(const paceline_collective& collective);
  /// Call in a forked child: closes the descriptor. The child has no mapping (MADV_DONTFORK).
  void abandon();

 private:
  RingWriter(base::Fd fd, std::byte* base);
  paceline_ring_header* header() { return reinterpret_cast<paceline_ring_header*>(base_); }

  base::Fd fd_;
  std::byte* base_;
  std::uint64_t next_ = 0;
};

/// Writes record number `number` (from 0) into the memory of a ring by the protocol of
/// step_record.h. The writer may be killed after any store, so the ring must be readable after
/// each.
void write_record(std::byte* ring, std::uint32_t capacity, std::uint64_t number,
                  const paceline_step_record& record);

}  // namespace paceline::trace
