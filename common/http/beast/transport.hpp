// SPDX-License-Identifier: Apache-2.0
// HttpTransport on Boost.Beast: HTTP/1.1 with persistent connections, TLS that is always verified,
// client certificates, and streams with back-pressure. Thread-safe. See common/http/transport.hpp
// for failures.
#pragma once

#include <memory>

#include "common/http/beast/options.hpp"
#include "common/http/transport.hpp"

namespace paceline::http {

std::shared_ptr<HttpTransport> make_beast_transport(Endpoint endpoint, BeastOptions options = {});

}  // namespace paceline::http
