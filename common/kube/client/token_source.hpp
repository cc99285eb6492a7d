// SPDX-License-Identifier: Apache-2.0
// TokenSource: the bearer token of each call. Implementations are thread-safe.
#pragma once

#include <string>

#include "common/base/error.hpp"

namespace paceline::kube {

class TokenSource {
 public:
  virtual ~TokenSource() = default;
  /// The bearer token, or "" if client certificates are used instead. If an exec plugin supplies
  /// the certificate, the endpoint holds it when this call returns.
  virtual Result<std::string> token() = 0;
  /// The server answered 401: get a new token if possible. True if the call is worth repeating.
  virtual bool refused() = 0;
};

}  // namespace paceline::kube
