// SPDX-License-Identifier: Apache-2.0
// TlsIdentity: the TLS context of an endpoint. It is built again when one of its files changes on
// disk (rotated CA or client certificate). Internal to this folder. Thread-safe. A context that
// cannot be loaded is kInvalid, and the message names the file.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include <boost/asio/ssl/context.hpp>

#include "common/base/error.hpp"
#include "common/http/transport.hpp"

namespace paceline::http {

class TlsIdentity {
 public:
  explicit TlsIdentity(const Endpoint& endpoint) : endpoint_(endpoint) {}

  struct Current {
    std::shared_ptr<boost::asio::ssl::context> context;
    std::uint64_t generation = 0;  // connections of an older generation are not used again
  };
  Result<Current> current();

 private:
  std::string fingerprint() const;

  const Endpoint& endpoint_;
  std::mutex mutex_;
  std::string seen_;
  Current current_;
};

/// Applies an endpoint's roots and certificate to a context. TLS 1.2 and later; the peer is always
/// verified.
Status configure_tls(boost::asio::ssl::context& context, const Endpoint& endpoint);

}  // namespace paceline::http
