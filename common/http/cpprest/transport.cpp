// SPDX-License-Identifier: Apache-2.0
#include "common/http/cpprest/transport.hpp"

#include <cpprest/http_client.h>
#include <pplx/threadpool.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <fstream>
#include <mutex>
#include <sstream>
#include <string>
#include <utility>

#include <boost/asio/ssl.hpp>

namespace paceline::http {
namespace {

namespace ssl = boost::asio::ssl;

/// cpprestsdk's threads live until the process ends, and one of them may close a connection during
/// exit. OpenSSL must therefore not clean up at exit. Only the first use of OpenSSL can turn that
/// off, so this runs before main.
const int kOpenSslStays = OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);

std::string pem_of(const std::string& data, const std::string& file) {
  if (!data.empty() || file.empty()) return data;
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return std::move(text).str();
}

/// cpprestsdk calls this for every new connection, so rotated files are read again.
void trust(ssl::context& context, const Endpoint& endpoint) {
  boost::system::error_code error;
  SSL_CTX_set_min_proto_version(context.native_handle(), TLS1_2_VERSION);
  const std::string ca = pem_of(endpoint.ca_data, endpoint.ca_file);
  if (!ca.empty()) context.add_certificate_authority(boost::asio::buffer(ca), error);
  const std::string certificate = pem_of(endpoint.cert_data, endpoint.cert_file);
  const std::string key = pem_of(endpoint.key_data, endpoint.key_file);
  if (!certificate.empty()) context.use_certificate_chain(boost::asio::buffer(certificate), error);
  if (!key.empty()) context.use_private_key(boost::asio::buffer(key), ssl::context::pem, error);
}

std::string url_of(const Endpoint& endpoint) {
  const bool v6 = endpoint.host.find(':') != std::string::npos;
  return (endpoint.tls ? "https://" : "http://") +
         (v6 ? "[" + endpoint.host + "]" : endpoint.host) + ":" + endpoint.port;
}

class CpprestTransport final : public HttpTransport {
 public:
  CpprestTransport(Endpoint endpoint, CpprestOptions options)
      : endpoint_(std::move(endpoint)), options_(options), client_(url_of(endpoint_), config()) {}

  Result<Response> send(const Request& request, const std::stop_token& stop) override {
    const auto what = [&] { return request.method + " " + request.target.substr(0, 256) + ": "; };
    const auto deadline = std::chrono::steady_clock::now() + request.timeout;
    {
      std::unique_lock lock(mutex_);
      if (!freed_.wait_until(lock, stop, deadline,
                             [&] { return in_flight_ < options_.max_in_flight; })) {
        if (stop.stop_requested()) return fail(Code::kCancelled, Origin::kHttp, what() + "stopped");
        return fail(Code::kExhausted, Origin::kHttp, what() + "all connections stayed busy", true);
      }
      ++in_flight_;
    }
    auto response = exchange(request, deadline, stop);
    {
      const std::lock_guard lock(mutex_);
      --in_flight_;
    }
    freed_.notify_one();
    return response;
  }

  Result<Response> stream(const Request&, const ChunkHandler&, const std::stop_token&) override {
    return fail(Code::kInvalid, Origin::kHttp,
                "streams are not served by cpprestsdk, which has no back-pressure; use the Beast "
                "transport");
  }

 private:
  web::http::client::http_client_config config() const {
    web::http::client::http_client_config config;
    config.set_validate_certificates(true);
    // cpprestsdk's time-out is per connection, not per call. `exchange` enforces the deadline of
    // the call; this time-out is only a backstop.
    config.set_timeout(std::chrono::seconds(120));
    config.set_ssl_context_callback(
        [endpoint = endpoint_](ssl::context& context) { trust(context, endpoint); });
    return config;
  }

  Result<Response> exchange(const Request& request, std::chrono::steady_clock::time_point deadline,
                            const std::stop_token& stop) {
    const std::string what = request.method + " " + request.target.substr(0, 256) + ": ";
    pplx::cancellation_token_source cancel;
    const auto oversized = std::make_shared<std::atomic<bool>>(false);
    // Wait in the caller's thread: waiting inside a handler of cpprestsdk deadlocks its pool.
    struct Shared {
      std::mutex mutex;
      std::condition_variable_any changed;
      bool done = false;
    };
    const auto shared = std::make_shared<Shared>();
    try {
      web::http::http_request message(request.method);
      message.set_request_uri(web::uri(request.target));
      for (const Header& header : request.headers) message.headers().add(header.name, header.value);
      if (!request.body.empty()) {
        const auto type = message.headers().content_type();
        message.set_body(request.body, type.empty() ? "application/json" : type);
      }
      message.set_progress_handler(
          [oversized, cancel, limit = options_.max_body_bytes](
              web::http::message_direction::direction direction, utility::size64_t bytes) {
            if (direction != web::http::message_direction::download || bytes <= limit) return;
            oversized->store(true);
            cancel.cancel();
          });
      auto task =
          client_.request(message, cancel.get_token())
              .then([](const web::http::http_response& answer) { return answer.content_ready(); });
      task.then([shared](const pplx::task<web::http::http_response>& ended) {
        try {
          // pplx raises SIGTRAP for an error that nothing observed, for example after a
          // cancellation
          ended.get();
        } catch (...) {
        }
        const std::lock_guard lock(shared->mutex);
        shared->done = true;
        shared->changed.notify_all();
      });
      {
        std::unique_lock lock(shared->mutex);
        shared->changed.wait_until(lock, stop, deadline, [&] { return shared->done; });
        if (!shared->done) {
          lock.unlock();
          cancel.cancel();
          if (stop.stop_requested()) return fail(Code::kCancelled, Origin::kHttp, what + "stopped");
          return fail(Code::kTimeout, Origin::kHttp,
                      what + "no answer within " + std::to_string(request.timeout.count()) + " ms",
                      true);
        }
      }
      const web::http::http_response answer = task.get();
      Response response;
      response.status = answer.status_code();
      for (const auto& [name, value] : answer.headers()) response.headers.push_back({name, value});
      const auto bytes = answer.extract_vector().get();
      response.body.assign(bytes.begin(), bytes.end());
      return response;
    } catch (...) {
      if (!oversized->load()) return failure(what, std::current_exception());
      return fail(
          Code::kExhausted, Origin::kHttp,
          what + "the answer is larger than " + std::to_string(options_.max_body_bytes) + " bytes");
    }
  }

  static Result<Response> failure(const std::string& what, const std::exception_ptr& thrown) {
    try {
      std::rethrow_exception(thrown);
    } catch (const web::http::http_exception& error) {
      const bool timeout = error.error_code() == std::errc::timed_out;
      return fail(timeout ? Code::kTimeout : Code::kUnavailable, Origin::kHttp, what + error.what(),
                  true);
    } catch (const std::exception& error) {
      return fail(Code::kUnavailable, Origin::kHttp, what + error.what(), true);
    }
  }

  const Endpoint endpoint_;
  const CpprestOptions options_;
  web::http::client::http_client client_;
  std::mutex mutex_;
  std::condition_variable_any freed_;
  std::size_t in_flight_ = 0;
};

}  // namespace

std::shared_ptr<HttpTransport> make_cpprest_transport(Endpoint endpoint, CpprestOptions options) {
  static std::once_flag once;
  // Set before the first use of cpprestsdk: its default is 40 threads.
  std::call_once(once, [&] {
    crossplat::threadpool::initialize_with_threads(static_cast<std::size_t>(options.threads));
  });
  return std::make_shared<CpprestTransport>(std::move(endpoint), options);
}

}  // namespace paceline::http
