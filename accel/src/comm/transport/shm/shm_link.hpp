// SPDX-License-Identifier: Apache-2.0
// A link through a pipe in memory that two ranks of a host share: in the region of all of them, or
// in a memory file of the two alone.
//
// Ownership: of the pair's memory; the region outlives its links. Threads: one at a time for each
// end. Blocking: on the pipe's doorbells, which the watch rings too. Failure: as link.hpp; a peer
// that has left is named at once, for of it no call of all may know.
#pragma once

#include <memory>

#include "comm/failure/failure_detector.hpp"
#include "comm/transport/link.hpp"
#include "comm/transport/shm/region.hpp"

namespace paceline::comm {

// A pipe of two ranks alone, in one direction.
class PairMemory {
 public:
  static base::Fd create();
  static std::unique_ptr<PairMemory> map(const base::Fd& file);  // null, and errno
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
  ShmSender(PipeView pipe, std::uint32_t peer, Watch& watch);  // read by `peer`
  ShmSender(std::unique_ptr<PairMemory> memory, std::uint32_t peer, Watch& watch);
  bool send(const std::byte* data, std::size_t size) override;
  std::uint32_t peer() const override { return peer_; }
  std::size_t holds() const override { return kPipeBytes / 4; }

 private:
  std::unique_ptr<PairMemory> memory_;
  Pipe& pipe_;
  base::ByteRing bytes_;
  std::uint32_t peer_;
  Watch& watch_;
};

class ShmReceiver final : public ReceiveLink {
 public:
  ShmReceiver(PipeView pipe, std::uint32_t peer, Watch& watch);  // written by `peer`
  ShmReceiver(std::unique_ptr<PairMemory> memory, std::uint32_t peer, Watch& watch);
  bool receive(std::byte* data, std::size_t size) override;
  std::uint32_t peer() const override { return peer_; }

 private:
  std::unique_ptr<PairMemory> memory_;
  Pipe& pipe_;
  base::ByteRing bytes_;
  std::uint32_t peer_;
  Watch& watch_;
};

}  // namespace paceline::comm
