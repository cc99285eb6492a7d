// SPDX-License-Identifier: Apache-2.0
// A link over several TCP connections. Byte p of the stream travels on connection (p / stripe) mod
// flows. Both ends know where each byte belongs, so nothing is added on the wire. Each connection
// may use a network device of its own.
//
// Ownership: of the connections. Threads: one at a time. Failure: as link.hpp says; a broken
// connection is reported to the failure detector. If one device of several is cut off, heartbeats
// still arrive through another device, so the receiver probes an idle connection itself
// (keepalive).
#pragma once

#include <poll.h>

#include <vector>

#include "base/fd.hpp"
#include "comm/failure/failure_detector.hpp"
#include "comm/transport/link.hpp"

namespace paceline::comm {

// Data is split in stripes, one for each connection. All connections then advance at the same pace,
// the first bytes arrive first, and a ring can pass them on. Stripes below the least cost too many
// system calls.
inline constexpr std::uint64_t kAllStripes = 64UL * 1024;
inline constexpr std::uint64_t kLeastStripe = 8UL * 1024;

// Shared by sending and receiving: which connection still has which bytes to move.
class Striped {
 public:
  Striped(std::vector<base::Fd> flows, std::uint32_t peer, FailureDetector& detector);
  template <typename Move>
  bool move(std::size_t size, short event, const Move& move_some);
  void stripe(std::uint32_t flows);
  // An idle connection to an unreachable peer ends within `heartbeat_timeout`, or two seconds if
  // that is shorter.
  void ask_when_idle(std::chrono::milliseconds heartbeat_timeout) const;
  std::uint32_t peer() const { return peer_; }
  std::size_t buffer_bytes() const;

 private:
  struct Flow {
    base::Fd connection;
    std::uint64_t next;  // the next stream position that it moves
  };
  enum class Moved : std::uint8_t { kSome, kBlocked, kBroken };
  template <typename Move>
  Moved move_flow(Flow& flow, std::uint64_t end, std::size_t& left, const Move& move_some);
  bool wait(std::uint64_t end, short event);

  std::vector<Flow> flows_;
  std::uint64_t used_ = 0;    // the first connection in use
  std::uint64_t stripe_ = 0;  // in bytes
  std::uint64_t position_ = 0;
  std::uint32_t peer_;
  FailureDetector& detector_;
};

class TcpSender final : public SendLink {
 public:
  TcpSender(std::vector<base::Fd> flows, std::uint32_t peer, FailureDetector& detector)
      : striped_(std::move(flows), peer, detector) {}
  bool send(const std::byte* data, std::size_t size) override;
  std::uint32_t peer() const override { return striped_.peer(); }
  void stripe(std::uint32_t flows) override { striped_.stripe(flows); }
  std::size_t buffer_bytes() const override { return striped_.buffer_bytes(); }

 private:
  Striped striped_;
};

class TcpReceiver final : public ReceiveLink {
 public:
  TcpReceiver(std::vector<base::Fd> flows, std::uint32_t peer, FailureDetector& detector);
  bool receive(std::byte* data, std::size_t size) override;
  void stripe(std::uint32_t flows) override { striped_.stripe(flows); }
  std::uint32_t peer() const override { return striped_.peer(); }

 private:
  Striped striped_;
};

}  // namespace paceline::comm
