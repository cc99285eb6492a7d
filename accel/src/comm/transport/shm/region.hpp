// SPDX-License-Identifier: Apache-2.0
// The memory that all ranks of one host share. It has a cell of counters and a pipe to the next
// rank for each rank, and slots for the chunks of hierarchical all-reduces. It is a memory file, so
// it has no name that could be left behind.
//
// Ownership: of its mapping; the last process to unmap it frees the memory. Threads and processes:
// its contents are synchronised by atomics. Failure: map and alone return null and set errno.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/byte_ring.hpp"
#include "base/doorbell.hpp"
#include "comm/failure/call.hpp"
#include "comm/transport/shm/memory_file.hpp"

namespace paceline::comm {

inline constexpr std::uint32_t kDepth = 4;  // chunks in flight
inline constexpr std::size_t kPipeBytes = 256UL * 1024;

// Counters continue over all calls and wrap. Compare them by their difference.
struct Cell {
  alignas(64) base::Doorbell bell;                   // this rank's calling thread waits at it
  alignas(64) std::atomic<std::uint32_t> copied_in;  // chunks copied into this rank's slots
  std::atomic<std::uint32_t> copied_out;             // results copied out of the shared slots
  // of a channel: chunks whose shard is added up, so that their slots are free
  std::atomic<std::uint32_t> added;
  std::atomic<std::uint32_t> finished;  // of a channel: chunks whose shard has its final result
  // used alternately; written before `copied_in` advances, read after
  std::array<Call, 2> calls;
};

struct Pipe {
  base::RingCursors cursors;
  alignas(64) base::Doorbell data;
  alignas(64) base::Doorbell space;
};

// A pipe that one rank writes and another reads. The mapping must outlive it.
struct PipeView {
  Pipe& pipe;
  std::byte* bytes;  // kPipeBytes long
};

class Region {
 public:
  static std::size_t bytes(std::uint32_t ranks, std::size_t chunk);
  static base::Fd create(std::uint32_t ranks, std::size_t chunk);
  static std::unique_ptr<Region> map(const base::Fd& file, std::uint32_t ranks, std::size_t chunk);
  static std::unique_ptr<Region> alone(std::size_t chunk);  // for a single rank

  Cell& cell(std::uint32_t local) const { return *reinterpret_cast<Cell*>(base_ + local * kPart); }
  PipeView pipe(std::uint32_t local) const {
    std::byte* const at = base_ + local * kPart + kCell;
    return {.pipe = *reinterpret_cast<Pipe*>(at), .bytes = at + kPipe};
  }
  // The slot of rank `local`'s input; with `local` equal to `ranks`, the slot of the result.
  std::byte* slot(std::uint32_t local, std::uint32_t number) const {
    return base_ + ranks_ * kPart + (local * kDepth + number % kDepth) * chunk_;
  }

 private:
  static constexpr std::size_t kCell = 4096;
  static constexpr std::size_t kPipe = 4096;
  static_assert(sizeof(Cell) <= kCell && sizeof(Pipe) <= kPipe);
  static constexpr std::size_t kPart = kCell + kPipe + kPipeBytes;

  Region(std::unique_ptr<Mapping> mapping, std::uint32_t ranks, std::size_t chunk)
      : mapping_(std::move(mapping)), base_(mapping_->base()), ranks_(ranks), chunk_(chunk) {}

  std::unique_ptr<Mapping> mapping_;
  std::byte* base_;
  std::uint32_t ranks_;
  std::size_t chunk_;
};

}  // namespace paceline::comm
