// SPDX-License-Identifier: Apache-2.0
// HttpTransport: all HTTP requests of Paceline go through it. Beast implements all of it,
// cpprestsdk the unary calls, and in tests the fake API server.
//
// Ownership: a transport belongs to one server (scheme, host, port, TLS identity); its users share
// it. Thread-safe: any number of threads may call `send` and `stream` at once. Each call blocks its
// caller, and the number of connections is bounded.
//
// Failure: an Error means that no complete answer came (unreachable, time-out, cancelled, too
// large). An HTTP status of 400 and above is an answer, not an Error. After kTimeout, or
// kUnavailable while the answer was read, the server may have applied the request.
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
  /// Unary: limits the whole call. Stream: limits the time to the first byte, then between two
  /// chunks.
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

/// Takes one piece of a streamed body, on the caller's thread. The transport reads nothing more
/// from the socket until the handler returns (back-pressure). Returning false ends the stream.
using ChunkHandler = std::function<bool(std::string_view)>;

class HttpTransport {
 public:
  virtual ~HttpTransport() = default;
  virtual Result<Response> send(const Request& request, const std::stop_token& stop) = 0;
  /// The body of a 2xx answer goes to `on_chunk`, and Response::body stays empty. The body of
  /// another answer comes back in the Response. Returns when the server ends the body or the
  /// handler returns false; kCancelled if `stop` was requested.
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
  /// Connections made with an earlier certificate are not used again.
  void renew(std::string certificate, std::string key);

 private:
  mutable std::mutex mutex_;
  Pem pem_;
};

/// The address of a server and how to verify it. Files are read again when they change on disk.
struct Endpoint {
  bool tls = false;
  std::string host;         // name or address, without brackets
  std::string port;         // "443"
  std::string server_name;  // verified against the certificate; empty: host
  std::string ca_file;      // PEM; if ca_data is empty too, the system's roots are used
  std::string ca_data;
  std::string cert_file;  // client certificate and key (PEM): both or neither
  std::string key_file;
  std::string cert_data;
  std::string key_data;
  std::shared_ptr<RenewableCertificate>
      renewable;  // once it holds a certificate, replaces the four above; Beast's transport only
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
