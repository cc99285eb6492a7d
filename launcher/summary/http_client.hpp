// SPDX-License-Identifier: Apache-2.0
// One request by HTTP/1.1 to numeric addresses. Header-only parts, so that it links into the static
// launcher.
//
// Blocks until the answer or for `patience`. Failure: no answer, with the reason.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "common/net/address.hpp"

namespace paceline::summary {

struct ClientRequest {
  bool post = false;  // else GET
  std::string path;
  std::string body{};
  std::vector<std::pair<std::string, std::string>> headers{};
};

struct ClientAnswer {
  int status = 0;
  std::string body;
};

/// The addresses are tried in turn until one takes the connection.
Result<ClientAnswer> exchange(const std::vector<net::Address>& addresses,
                              const ClientRequest& request, std::chrono::milliseconds patience);

}  // namespace paceline::summary
