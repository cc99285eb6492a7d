// SPDX-License-Identifier: Apache-2.0
// TLS for the server. Certificate and key come from files, which every new connection checks, so
// that a rotated certificate is used without a restart.
//
// Thread-safe. If the files cannot be used at the start, the error is kInvalid and names the file.
// If they cannot be used later (in the middle of a rotation), the server keeps the last
// certificate.
#pragma once

#include <memory>
#include <string>

#include "common/base/error.hpp"
#include "common/http/server/server.hpp"

namespace paceline::http {

/// PEM: the server's certificate, followed by its chain.
struct ServerCertificate {
  std::string certificate_file;
  std::string key_file;
};

/// For ServerOptions::connections. TLS 1.2 and later.
Result<std::shared_ptr<ConnectionFactory>> make_tls_connections(
    const ServerCertificate& certificate);

}  // namespace paceline::http
