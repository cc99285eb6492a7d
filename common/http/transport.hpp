// SPDX-License-Identifier: Apache-2.0
// HttpTransport: the one way HTTP requests leave Paceline. Behind it stand Beast (everything),
// cpprestsdk (unary calls) and, in tests, the fake API server.
//
// Ownership: a transport belongs to one server (scheme, host, port, TLS identity) and is shared by
// its users. Thread-safe: any number of threads call `send` and `stream` at once, each blocks its
// own caller; connections are bounded inside. Failure: an Error says that no complete answer came
// (unreachable, time-out, cancelled, oversized). An HTTP status of 400 and above is an answer, not
// an Error. kTimeout, and kUnavailable while reading the answer, mean that the request may have
// been applied.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/error.hpp"

namespace paceline::http {

struct Header {
  std::string name;
  std::string value;
};

struct Request {
  std::string method = "GET";
  std::string target = "/";  // path and query, percent-encoded
  std::vector<Header> headers;
  std::string body;
  /// Unary: for the whole call. Stream: until the first byte, and then between two chunks.
  std::chrono::milliseconds timeout{30000};

  /// The first header of that name in any case; empty when absent.
  std::string_view header(std::string_view name) const;
};

struct Response {
  int status = 0;
  std::vector<Header> headers;
  std::string body;

  /// The first header of that name in any case; empty when absent.
  std::string_view header(std::string_view name) const;
};

/// Takes a piece of a streamed body on the caller's thread; nothing more is read from the socket
/// until it returns (back-pressure). False ends the stream.
using ChunkHandler = std::function<bool(std::string_view)>;

class HttpTransport {
 public:
  virtual ~HttpTransport() = default;
  virtual Result<Response> send(const Request& request, const std::stop_token& stop) = 0;
  /// A 2xx answer's body goes to `on_chunk` and Response::body stays empty; another answer's body
  /// comes back in the Response. Returns when the server ended the body or the handler said false;
  /// kCancelled when stopped.
  virtual Result<Response> stream(const Request& request, const ChunkHandler& on_chunk,
                                  const std::stop_token& stop) = 0;
};

/// A client certificate that is renewed while its endpoint is in use. Thread-safe.
class RenewableCertificate {
 public:
  struct Pem {
    std::string certificate;
    std::string key;
    std::uint64_t generation = 0;  // 0: none yet
  };
  Pem current() const;
  /// Connections that were made with an earlier one are not used again.
  void renew(std::string certificate, std::string key);

 private:
  mutable std::mutex mutex_;
  Pem pem_;
};

/// Where a server is and how it is trusted. Files are read again when they change on disk.
struct Endpoint {
  bool tls = false;
  std::string host;         // name or address, without brackets
  std::string port;         // "443"
  std::string server_name;  // verified against the certificate; empty: host
  std::string ca_file;      // PEM; with ca_data empty too: the system's roots
  std::string ca_data;
  std::string cert_file;  // client certificate and key, PEM, both or none
  std::string key_file;
  std::string cert_data;
  std::string key_data;
  std::shared_ptr<RenewableCertificate>
      renewable;  // once it has one, instead of the four above; Beast's transport only
};

/// "https://host:port/prefix" in pieces; the prefix ("" or "/prefix") is returned apart.
struct ServerUrl {
  Endpoint endpoint;
  std::string prefix;
};
Result<ServerUrl> parse_server_url(std::string_view url);

/// Percent-encodes everything but unreserved characters.
std::string escape(std::string_view text);

}  // namespace paceline::http
