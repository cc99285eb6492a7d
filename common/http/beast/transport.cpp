// SPDX-License-Identifier: Apache-2.0
#include "common/http/beast/transport.hpp"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "common/http/beast/connection.hpp"
#include "common/http/beast/tls.hpp"

namespace paceline::http {
namespace {

using std::chrono::steady_clock;

class BeastTransport final : public HttpTransport {
 public:
  BeastTransport(Endpoint endpoint, BeastOptions options)
      : endpoint_(std::move(endpoint)), options_(options), identity_(endpoint_) {}

  Result<Response> send(const Request& request, const std::stop_token& stop) override {
    return exchange(request, nullptr, stop);
  }
  Result<Response> stream(const Request& request, const ChunkHandler& on_chunk,
                          const std::stop_token& stop) override {
    return exchange(request, &on_chunk, stop);
  }

 private:
  struct Idle {
    std::unique_ptr<Connection> connection;
    std::uint64_t generation = 0;
  };

  /// One of `max_connections` places, held while a request is in flight.
  class Place {
   public:
    explicit Place(BeastTransport& transport) : transport_(transport) {}
    ~Place() {
      if (!held_) return;
      {
        const std::lock_guard lock(transport_.mutex_);
        --transport_.in_use_;
      }
      transport_.freed_.notify_one();
    }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    bool take(steady_clock::time_point deadline, const std::stop_token& stop) {
      std::unique_lock lock(transport_.mutex_);
      held_ = transport_.freed_.wait_until(lock, stop, deadline, [&] {
        return transport_.in_use_ < transport_.options_.max_connections;
      });
      if (held_) ++transport_.in_use_;
      return held_;
    }

   private:
    BeastTransport& transport_;
    bool held_ = false;
  };

  Result<Response> exchange(const Request& request, const ChunkHandler* on_chunk,
                            const std::stop_token& stop) {
    if (stop.stop_requested()) return fail(Code::kCancelled, Origin::kHttp, "stopped");
    const Exchange exchange{request, on_chunk, steady_clock::now() + request.timeout, stop};
    Place place(*this);
    if (!place.take(exchange.deadline, stop)) {
      if (stop.stop_requested()) return fail(Code::kCancelled, Origin::kHttp, "stopped");
      return fail(Code::kExhausted, Origin::kHttp,
                  request.method + " " + request.target.substr(0, 256) + ": all " +
                      std::to_string(options_.max_connections) + " connections stayed busy",
                  true);
    }
    TlsIdentity::Current identity;
    if (endpoint_.tls) {
      auto current = identity_.current();
      if (!current) return std::unexpected(current.error());
      identity = std::move(*current);
    }
    // The server may close an idle connection at the moment we use it. If no byte of an answer
    // came, a read is sent again on a new connection. A write may have been applied, so its caller
    // decides.
    if (auto kept = take_idle(identity.generation)) {
      auto response = kept->run(exchange);
      const bool again = !response && response.error().code == Code::kUnavailable &&
                         kept->silent() && request.method == "GET";
      if (!again) return keep(std::move(kept), identity.generation, std::move(response));
    }
    auto connection = make_connection(endpoint_, options_, identity.context);
    if (const auto connected = connection->connect(exchange); !connected)
      return std::unexpected(connected.error());
    auto response = connection->run(exchange);
    return keep(std::move(connection), identity.generation, std::move(response));
  }

  std::unique_ptr<Connection> take_idle(std::uint64_t generation) {
    for (;;) {
      Idle idle;
      {
        const std::lock_guard lock(mutex_);
        if (idle_.empty()) return nullptr;
        idle = std::move(idle_.back());
        idle_.pop_back();
      }
      if (idle.generation == generation && idle.connection->still_good())
        return std::move(idle.connection);
    }
  }

  Result<Response> keep(std::unique_ptr<Connection> connection, std::uint64_t generation,
                        Result<Response> response) {
    if (response && connection->reusable()) {
      const std::lock_guard lock(mutex_);
      idle_.push_back({std::move(connection), generation});
    }
    return response;
  }

  const Endpoint endpoint_;
  const BeastOptions options_;
  TlsIdentity identity_;
  std::mutex mutex_;
  std::condition_variable_any freed_;
  std::size_t in_use_ = 0;
  std::vector<Idle> idle_;
};

}  // namespace

std::shared_ptr<HttpTransport> make_beast_transport(Endpoint endpoint, BeastOptions options) {
  return std::make_shared<BeastTransport>(std::move(endpoint), options);
}

}  // namespace paceline::http
