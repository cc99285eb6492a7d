// SPDX-License-Identifier: Apache-2.0
// The writing side of a ring (paceline/step_record.h): a sealed memfd, mapped, one writer,
// overwrite-oldest.
//
// Owns the memfd and the mapping. `publish` and `beat` are for one thread, `set_live` for one other
// at a time (the caller holds its lock); both touch different cache lines. Nothing blocks. `open`
// gives null and an errno when the system refuses (no memfd, no memory); nothing fails afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "paceline/step_record.h"

namespace paceline::trace {

class RingWriter {
 public:
  /// Makes a ring whose header is `header`; magic, layout and counters are filled in here. Null
  /// with errno on failure.
  static std::unique_ptr<RingWriter> open(const paceline_ring_header& header, int& error);
  ~RingWriter();
  RingWriter(const RingWriter&) = delete;
  RingWriter& operator=(const RingWriter&) = delete;

  int fd() const { return fd_; }
  std::uint64_t published() const { return next_; }
  void publish(const paceline_step_record& record);
  void beat(std::uint64_t now_ns);
  void set_live(std::uint32_t phase, std::uint64_t since_ns, std::uint64_t step);
  /// In a forked child: the mapping is not there (MADV_DONTFORK); only the descriptor is closed.
  void abandon();

 private:
  RingWriter(int fd, std::byte* base);
  paceline_ring_header* header() { return reinterpret_cast<paceline_ring_header*>(base_); }

  int fd_;
  std::byte* base_;
  std::uint64_t next_ = 0;
};

/// Writes record number `number` (from 0) into a ring's memory by the protocol of step_record.h.
/// Every store is one that a reader may see last: the writer may be killed after any of them.
void write_record(std::byte* ring, std::uint32_t capacity, std::uint64_t number,
                  const paceline_step_record& record);

}  // namespace paceline::trace
