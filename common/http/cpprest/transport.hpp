// SPDX-License-Identifier: Apache-2.0
// HttpTransport on cpprestsdk for unary calls. `stream` refuses: cpprestsdk has no back-pressure,
// so a slow reader would make memory grow without bound. Built only by g++ with
// PACELINE_WITH_CPPREST on; otherwise Beast is used. Thread-safe.
#pragma once

#include <cstddef>
#include <memory>

#include "common/http/transport.hpp"

namespace paceline::http {

struct CpprestOptions {
  // threads of cpprestsdk's pool, which the whole process shares; the first transport decides
  int threads = 4;
  std::size_t max_body_bytes = 64 * 1024 * 1024;  // a larger answer is an error
  // further callers wait, within their time-out
  std::size_t max_in_flight = 64;
};

std::shared_ptr<HttpTransport> make_cpprest_transport(Endpoint endpoint,
                                                      CpprestOptions options = {});

}  // namespace paceline::http
