// SPDX-License-Identifier: Apache-2.0
// The interface of all transports (tcp/, shm/, rdma/): a stream of bytes to one rank or from one
// rank. Rings and pairwise calls send and receive through it, and do not know which transport they
// use.
//
// Ownership: the holder owns the link; buffers belong to the caller and are free again on return.
// Threads: one at a time. Blocking: until all bytes are taken over or delivered. Failure: false;
// the failure detector has the reason.
#pragma once

#include <cstddef>
#include <cstdint>

namespace paceline::comm {

class SendLink {
 public:
  virtual ~SendLink() = default;
  virtual bool send(const std::byte* data, std::size_t size) = 0;
  virtual std::uint32_t peer() const = 0;
  // Sets how many of the link's connections carry the data that follows; 0: all. Both sides call it
  // between the same two calls.
  virtual void stripe(std::uint32_t /*flows*/) {}
  // After the last data of a call: waits until any loss of it would be reported. A transport whose
  // kernel keeps sending by itself needs no wait.
  virtual bool flush() { return true; }
  // How many bytes a send accepts without waiting, if the peer has read all that was sent before
  // them.
  virtual std::size_t buffer_bytes() const { return 0; }
};

class ReceiveLink {
 public:
  virtual ~ReceiveLink() = default;
  virtual bool receive(std::byte* data, std::size_t size) = 0;
  virtual void stripe(std::uint32_t /*flows*/) {}
  virtual std::uint32_t peer() const = 0;
};

}  // namespace paceline::comm
