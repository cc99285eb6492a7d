// SPDX-License-Identifier: Apache-2.0
// Connection: frames over one TCP socket in both directions; Client and Server use it. Incoming
// frames are bounded by the decoder's limit, the send queue by kMostQueued.
//
// Lives in a shared_ptr as long as the socket has work. One thread: the io_context's. Failure:
// `closed` is called once with the reason, unless the owner called `close` or `abort`.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <boost/asio/ip/tcp.hpp>

#include "launcher/rendezvous/frame.hpp"

namespace paceline::rendezvous {

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  struct Callbacks {
    std::function<void(std::string payload)> frame;
    std::function<void(std::string reason)> closed;
  };

  Connection(boost::asio::ip::tcp::socket socket, std::size_t limit);

  void start(Callbacks callbacks);
  void set_limit(std::size_t limit) { decoder_.set_limit(limit); }
  void send(std::string_view payload);
  /// Closes after everything sent is written; no callback is called any more.
  void close();
  /// Closes now; no callback is called any more.
  void abort();
  std::string peer() const;

 private:
  void read();
  void write();
  void fail(std::string reason);

  boost::asio::ip::tcp::socket socket_;
  FrameDecoder decoder_;
  Callbacks callbacks_;
  std::array<char, 16384> buffer_{};
  std::deque<std::string> queue_;
  std::size_t queued_bytes_ = 0;
  bool writing_ = false;
  bool closing_ = false;
  bool over_ = false;
};

}  // namespace paceline::rendezvous
