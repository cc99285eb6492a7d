// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/connection.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>

namespace paceline::rendezvous {
namespace {

constexpr std::size_t kMostQueued = 2 * kServerLimit;

}  // namespace

Connection::Connection(boost::asio::ip::tcp::socket socket, std::size_t limit)
    : socket_(std::move(socket)), decoder_(limit) {
  boost::system::error_code ignored;
  socket_.set_option(boost::asio::ip::tcp::no_delay(true), ignored);
}

std::string Connection::peer() const {
  boost::system::error_code error;
  const auto endpoint = socket_.remote_endpoint(error);
  return error ? "a closed connection" : endpoint.address().to_string();
}

void Connection::start(Callbacks callbacks) {
  callbacks_ = std::move(callbacks);
  read();
}

void Connection::read() {
  socket_.async_read_some(
      boost::asio::buffer(buffer_),
      [self = shared_from_this()](boost::system::error_code error, std::size_t size) {
        if (self->over_) return;
        if (error)
          return self->fail(error == boost::asio::error::eof ? "the peer closed the connection"
                                                             : error.message());
        self->decoder_.push({self->buffer_.data(), size});
        while (!self->over_ && !self->closing_) {
          auto frame = self->decoder_.next();
          if (!frame) return self->fail(frame.error().message);
          if (!*frame) break;
          self->callbacks_.frame(std::move(**frame));
        }
        if (!self->over_) self->read();
      });
}

void Connection::send(std::string_view payload) {
  if (over_ || closing_) return;
  std::string frame = encode_frame(payload);
  if (queued_bytes_ + frame.size() > kMostQueued)
    return fail("the peer does not take what it is sent");
  queued_bytes_ += frame.size();
  queue_.push_back(std::move(frame));
  if (!writing_) write();
}

void Connection::write() {
  writing_ = true;
  boost::asio::async_write(
      socket_, boost::asio::buffer(queue_.front()),
      [self = shared_from_this()](boost::system::error_code error, std::size_t) {
        self->writing_ = false;
        if (self->over_) return;
        if (error) {
          if (self->closing_) return self->abort();
          return self->fail(error.message());
        }
        self->queued_bytes_ -= self->queue_.front().size();
        self->queue_.pop_front();
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
