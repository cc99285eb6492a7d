// SPDX-License-Identifier: Apache-2.0
// Limits of the Beast transport.
#pragma once

#include <cstddef>

namespace paceline::http {

struct BeastOptions {
  // further callers wait, within their time-out
  std::size_t max_connections = 64;
  std::size_t max_body_bytes = 64 * 1024 * 1024;  // a larger unary answer is an error
  // read ahead of the handler of one stream
  std::size_t read_buffer_bytes = 64 * 1024;
};

}  // namespace paceline::http
