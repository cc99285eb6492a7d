// SPDX-License-Identifier: Apache-2.0
// HttpTransport on cpprestsdk for unary calls. It has no back-pressure on streams (memory grows
// without bound under a slow reader), so `stream` refuses. Built by g++ only and where
// PACELINE_WITH_CPPREST is on; Beast serves otherwise. Thread-safe.
#pragma once

#include <cstddef>
#include <memory>

#include "common/http/transport.hpp"

namespace paceline::http {

struct CpprestOptions {
  // of cpprestsdk's own pool, which the whole process shares: the first transport decides
  int threads = 4;
  std::size_t max_body_bytes = 64 * 1024 * 1024;  // a larger answer is an error
  // callers beyond it wait for their turn, within their time-out
  std::size_t max_in_flight = 64;
};

std::shared_ptr<HttpTransport> make_cpprest_transport(Endpoint endpoint,
                                                      CpprestOptions options = {});

}  // namespace paceline::http
