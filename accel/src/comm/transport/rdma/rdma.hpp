// SPDX-License-Identifier: Apache-2.0
// RDMA for links between hosts: the active ports of this machine (its NICs), and reliable connected
// queue pairs on them, one for each link. Start reading this room here.
//
// A queue pair carries messages one way, out of and into a ring of registered slots. The receiver
// sends empty messages back, each of which says that a slot is free. No rank gives a key to its
// memory to another, so only sent messages arrive.
//
// Ownership: the holder owns a queue pair and destroys it before the Rdma. Threads: one at a time
// for each queue pair. Blocking: only `wait`. Failure: a text; a failed queue pair stays failed,
// and broken() has the reason.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "comm/failure/failure_detector.hpp"
#include "comm/transport/rdma/queue_pair_address.hpp"
#include "comm/transport/rdma/rdma_choice.hpp"

namespace paceline::comm {

inline constexpr std::size_t kMostNics = 16;
inline constexpr std::uint32_t kSlots = 8;
// A ring of 1 MiB: what one 400 Gbit/s NIC carries in 20 us, the round trip of a long route. There
// are few such links.
inline constexpr std::size_t kSlotBytes = 128UL * 1024;
// As large as a pipe of two ranks, because there are many links between pairs.
inline constexpr std::size_t kPairSlotBytes = 32UL * 1024;

class NicQueue {
 public:
  virtual ~NicQueue() = default;
  virtual QueuePairAddress address() const = 0;
  // All slots, or places for credits, are ready to receive when the peer learns of it. Returns an
  // error text, or an empty one.
  virtual std::string connect(const QueuePairAddress& peer) = 0;

  virtual std::size_t slot_bytes() const = 0;
  virtual std::byte* slot(std::uint64_t number) = 0;
  // Sends message number sent() from its slot; 0 bytes: an empty message.
  virtual void send(std::size_t bytes) = 0;
  virtual void receive_again() = 0;  // frees the slot of the oldest received message

  // Counts since connect.
  virtual std::uint64_t sent() const = 0;
  virtual std::uint64_t delivered() const = 0;  // of the sent messages
  virtual std::uint64_t arrived() const = 0;
  virtual std::size_t length(
      std::uint64_t number) const = 0;  // of a received message whose slot is not freed yet

  // Handles what has completed. Returns whether anything has.
  virtual bool look() = 0;
  // Waits until something completes, until `until`, or until `abort_fd` is readable. It polls for a
  // short while and then sleeps.
  virtual void wait(Clock::time_point until, int abort_fd) = 0;
  virtual const std::string& broken() const = 0;  // empty while it works
  virtual bool broken_here() const = 0;           // whether this end's own device caused it
  virtual int file() const = 0;                   // a forked child closes it
};

class Rdma {
 public:
  virtual ~Rdma() = default;
  virtual std::size_t nics() const = 0;
  virtual std::string name(std::size_t nic) const = 0;
  // `sends`: whether this end sends the messages.
  virtual std::expected<std::unique_ptr<NicQueue>, std::string> make_queue(
      std::size_t nic, bool sends, std::size_t slot_bytes) const = 0;
  virtual std::vector<int> files() const = 0;  // a forked child closes them
};

// The error says why there is no RDMA: no library, no device, or no active port.
std::expected<std::unique_ptr<Rdma>, std::string> open_rdma(
    const RdmaSettings& settings, const std::filesystem::path& root = "/");

}  // namespace paceline::comm
