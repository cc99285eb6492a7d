// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/connection.hpp"

#include <array>

#include <boost/asio/buffer.hpp>

namespace paceline::rendezvous {
namespace {

constexpr std::size_t kMostQueued = 2 * kServerLimit;

}  // namespace

Connection::Connection(boost::asio::ip::tcp::socket socket, std::size_t limit)
    : socket_(std::move(socket)), decoder_(limit) {
  boost::system::error_code ignored;
  socket_.set_option(boost::asio::ip::tcp::no_delay(true), ignored);
  socket_.non_blocking(true, ignored);
}

std::string Connection::peer() const {
  boost::system::error_code error;
  const auto endpoint = socket_.remote_endpoint(error);
  if (error) return "a closed connection";
  const auto address = endpoint.address();
  // A listener of both families sees IPv4 peers as ::ffff:10.0.0.7.
  if (address.is_v6() && address.to_v6().is_v4_mapped())
    return boost::asio::ip::make_address_v4(boost::asio::ip::v4_mapped, address.to_v6())
        .to_string();
  return address.to_string();
}

void Connection::start(Callbacks callbacks) {
  callbacks_ = std::move(callbacks);
  read();
}

void Connection::read() {
  socket_.async_wait(boost::asio::ip::tcp::socket::wait_read,
                     [self = shared_from_this()](boost::system::error_code error) {
                       if (self->over_) return;
                       if (error) return self->fail(error.message());
                       self->receive();
                     });
}

void Connection::receive() {
  // The io_context has one thread, so all connections share the buffer.
  static thread_local std::array<char, 65536> buffer;
  boost::system::error_code error;
  const std::size_t size = socket_.read_some(boost::asio::buffer(buffer), error);
  if (error == boost::asio::error::would_block || error == boost::asio::error::interrupted)
    return read();
  if (error)
    return fail(error == boost::asio::error::eof ? "the peer closed the connection"
                                                 : error.message());
  if (!closing_ && callbacks_.progress) callbacks_.progress();
  decoder_.push({buffer.data(), size});
  while (!over_ && !closing_) {
    auto frame = decoder_.next();
    if (!frame) return fail(frame.error().message);
    if (!*frame) break;
    callbacks_.frame(std::move(**frame));
  }
  if (!over_) read();
}

void Connection::send(SharedFrame frame) {
  if (over_ || closing_) return;
  if (queued_bytes_ + frame->size() > kMostQueued)
    return fail("the peer does not take what it is sent");
  queued_bytes_ += frame->size();
  queue_.push_back(std::move(frame));
  if (!writing_) write();
}

void Connection::write() {
  writing_ = true;
  const std::string& frame = *queue_.front();
  socket_.async_write_some(
      boost::asio::buffer(frame.data() + written_, frame.size() - written_),
      [self = shared_from_this()](boost::system::error_code error, std::size_t size) {
        self->writing_ = false;
        if (self->over_) return;
        if (error) {
          if (self->closing_) return self->abort();
          return self->fail(error.message());
        }
        // The kernel takes the first part even if the peer is dead.
        const bool waited = self->written_ > 0;
        self->written_ += size;
        if (self->written_ == self->queue_.front()->size()) {
          self->queued_bytes_ -= self->written_;
          self->written_ = 0;
          self->queue_.pop_front();
        }
        if (waited && !self->closing_ && self->callbacks_.progress) self->callbacks_.progress();
        if (self->over_ || self->writing_) return;
        if (!self->queue_.empty()) {
          self->write();
        } else if (self->closing_) {
          self->abort();
        }
      });
}

void Connection::close() {
  closing_ = true;
  if (!writing_) abort();
}

void Connection::abort() {
  if (std::exchange(over_, true)) return;
  boost::system::error_code ignored;
  socket_.shutdown(boost::asio::ip::tcp::socket::shutdown_both, ignored);
  socket_.close(ignored);
}

void Connection::fail(std::string reason) {
  if (over_) return;
  const bool silent = closing_;
  abort();
  // The caller's handler keeps this object alive: the callback may drop the owner's reference.
  if (!silent && callbacks_.closed) callbacks_.closed(std::move(reason));
}

}  // namespace paceline::rendezvous
