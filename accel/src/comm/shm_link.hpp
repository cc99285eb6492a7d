// SPDX-License-Identifier: Apache-2.0
// A link through a pipe in the region that the ranks of a host share.
//
// Ownership: none; the region outlives it. Threads: one at a time for each end. Failure: as link.hpp.
#pragma once

#include "link.hpp"
#include "region.hpp"
#include "watch.hpp"

namespace paceline::comm {

class ShmSender final : public SendLink {
 public:
  // The pipe of `local`, read by `peer`.
  ShmSender(Region& region, std::uint32_t local, std::uint32_t peer, Watch& watch);
  bool send(const std::byte* data, std::size_t size) override;

 private:
  Pipe& pipe_;
  loader::ByteRing bytes_;
  std::uint32_t peer_;
  Watch& watch_;
};

class ShmReceiver final : public ReceiveLink {
 public:
  // The pipe of `local`, which is `peer`.
  ShmReceiver(Region& region, std::uint32_t local, std::uint32_t peer, Watch& watch);
  bool receive(std::byte* data, std::size_t size) override;
  std::uint32_t peer() const override { return peer_; }

 private:
  Pipe& pipe_;
  loader::ByteRing bytes_;
  std::uint32_t peer_;
  Watch& watch_;
};

}  // namespace paceline::comm
