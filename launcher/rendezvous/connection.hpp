// SPDX-License-Identifier: Apache-2.0
// Connection: frames over one TCP socket in both directions; Client, Server and TableRelay use it.
// Incoming frames are bounded by the decoder's limit, the send queue by kMostQueued. It holds no
// read buffer while nothing arrives, since rank 0 has thousands of connections.
//
// Lives in a shared_ptr as long as the socket has work. One thread: the io_context's. Failure:
// `closed` is called once with the reason, unless the owner called `close` or `abort`.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <boost/asio/ip/tcp.hpp>

#include "launcher/rendezvous/frame.hpp"

namespace paceline::rendezvous {

/// A failed accept, such as one for want of a descriptor, is tried again after this time.
inline constexpr std::chrono::milliseconds kAcceptPause{100};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  struct Callbacks {
    std::function<void(std::string payload)> frame;
    std::function<void(std::string reason)> closed;
    /// The peer sent bytes, or took bytes that had to wait for it: a sign of life within a large
    /// frame. May be empty.
    std::function<void()> progress = {};
  };

  Connection(boost::asio::ip::tcp::socket socket, std::size_t limit);

  void start(Callbacks callbacks);
  void set_limit(std::size_t limit) { decoder_.set_limit(limit); }
  void send(std::string_view payload) { send(shared_frame(payload)); }
  void send(SharedFrame frame);
  /// Closes after everything sent is written; no callback is called any more.
  void close();
  /// Closes now; no callback is called any more.
  void abort();
  std::string peer() const;

 private:
  void read();
  void receive();
  void write();
  void fail(std::string reason);

  boost::asio::ip::tcp::socket socket_;
  FrameDecoder decoder_;
  Callbacks callbacks_;
  std::deque<SharedFrame> queue_;
  std::size_t written_ = 0;  // of the frame at the front of the queue
  std::size_t queued_bytes_ = 0;
  bool writing_ = false;
  bool closing_ = false;
  bool over_ = false;
};

}  // namespace paceline::rendezvous
