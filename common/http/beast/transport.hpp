// SPDX-License-Identifier: Apache-2.0
// HttpTransport on Boost.Beast: HTTP/1.1 with kept-alive connections, TLS that is always verified,
// client certificates, streams with back-pressure. Thread-safe. See transport.hpp for what failure
// looks like.
#pragma once

#include <cstddef>
#include <memory>

#include "common/http/transport.hpp"

namespace paceline::http {

struct BeastOptions {
  // callers beyond it wait for their turn, within their time-out
  std::size_t max_connections = 64;
  std::size_t max_body_bytes = 64 * 1024 * 1024;  // a larger unary answer is an error
  // of one stream: the most that is read ahead of its handler
  std::size_t read_buffer_bytes = 64 * 1024;
};

std::shared_ptr<HttpTransport> make_beast_transport(Endpoint endpoint, BeastOptions options = {});

}  // namespace paceline::http
