// SPDX-License-Identifier: Apache-2.0
// A link through a pipe in memory that two ranks of a host share. The pipe lies in the region of
// the host, or in a memory file of the two ranks alone.
//
// Ownership: of the pair's own memory; the region outlives its links. Threads: one at a time for
// each end. Blocking: on the pipe's doorbells, which the failure detector rings too. Failure: as
// link.hpp says. A peer that has left is reported at once, since no collective call may be under
// way to notice.
#pragma once

#include <memory>

#include "comm/failure/failure_detector.hpp"
#include "comm/transport/link.hpp"
#include "comm/transport/shm/region.hpp"

namespace paceline::comm {

// A pipe between two ranks, in one direction.
class PairMemory {
 public:
  static base::Fd create();
  static std::unique_ptr<PairMemory> map(
      const base::Fd& file);  // returns null and sets errno on failure
  PipeView pipe() const {
    return {.pipe = *reinterpret_cast<Pipe*>(mapping_->base()), .bytes = mapping_->base() + kHead};
  }

 private:
  static constexpr std::size_t kHead = 4096;
  static_assert(sizeof(Pipe) <= kHead);
  explicit PairMemory(std::unique_ptr<Mapping> mapping) : mapping_(std::move(mapping)) {}

  std::unique_ptr<Mapping> mapping_;
};

class ShmSender final : public SendLink {
 public:
  ShmSender(PipeView pipe, std::uint32_t peer, FailureDetector& detector);  // `peer` reads it
  ShmSender(std::unique_ptr<PairMemory> memory, std::uint32_t peer, FailureDetector& detector);
  bool send(const std::byte* data, std::size_t size) override;
  std::uint32_t peer() const override { return peer_; }
  std::size_t buffer_bytes() const override { return kPipeBytes / 4; }

 private:
  std::unique_ptr<PairMemory> memory_;
  Pipe& pipe_;
  base::ByteRing bytes_;
  std::uint32_t peer_;
  FailureDetector& detector_;
};

class ShmReceiver final : public ReceiveLink {
 public:
  ShmReceiver(PipeView pipe, std::uint32_t peer, FailureDetector& detector);  // `peer` writes it
  ShmReceiver(std::unique_ptr<PairMemory> memory, std::uint32_t peer, FailureDetector& detector);
  bool receive(std::byte* data, std::size_t size) override;
  std::uint32_t peer() const override { return peer_; }

 private:
  std::unique_ptr<PairMemory> memory_;
  Pipe& pipe_;
  base::ByteRing bytes_;
  std::uint32_t peer_;
  FailureDetector& detector_;
};

}  // namespace paceline::comm
