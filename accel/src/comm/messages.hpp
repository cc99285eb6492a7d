// SPDX-License-Identifier: Apache-2.0
// Messages over one rail straight out of and into memory that the RDMA device reads and writes by
// itself: memory of a GPU, in ranges that are registered once. Any number of queue pairs, each
// between this rank and one other, tell of their messages in one place. A sender must know that its
// peer has posted a receive; nobody gets a key to another's memory.
//
// Ownership: of queue pairs and registrations, not of the memory, which outlives them. Threads: one
// at a time. Blocking: nothing here. Failure: a text; a queue pair that has failed stays so, and
// fault() says which and why.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "rail_address.hpp"

namespace paceline::comm {

struct DeviceRange {
  std::uint64_t address = 0;
  std::size_t bytes = 0;
  int dma_buf = -1;     // a descriptor of all of it
  std::string refusal;  // why there is no such descriptor
};

struct DevicePiece {
  std::uint64_t address = 0;
  std::size_t bytes = 0;
};

class Messages {
 public:
  struct Fault {
    // that it came over, or from its other end; none: it is this rank's own
    std::optional<std::size_t> pair;
    std::string why;
  };

  virtual ~Messages() = default;
  virtual RailAddress address(std::size_t pair) const = 0;
  // What was posted to receive before is there before the peer hears of it. Empty, or why not.
  virtual std::string connect(std::size_t pair, const RailAddress& peer) = 0;

  // Memory is within one range; of 0 bytes anywhere. What is sent first comes into what was posted
  // first.
  void send(std::size_t pair, const DevicePiece& piece) { send(pair, {}, piece); }
  // One behind the other, as one message.
  virtual void send(std::size_t pair, const DevicePiece& head, const DevicePiece& piece) = 0;
  virtual void receive(std::size_t pair, const DevicePiece& into) = 0;
  // Counts since connect.
  virtual std::uint64_t delivered(std::size_t pair) const = 0;  // of those sent
  virtual std::uint64_t arrived(std::size_t pair) const = 0;

  // Takes notice of what has happened: whether anything has.
  virtual bool look() = 0;
  // From here on file() becomes readable when something happens; heard() after it did.
  virtual void listen() = 0;
  virtual void heard() = 0;
  virtual int file() const = 0;
  virtual const std::optional<Fault>& fault() const = 0;
};

}  // namespace paceline::comm
