// SPDX-License-Identifier: Apache-2.0
// TLS for the server: certificate and key from files, looked at for every connection, so that a
// rotated certificate is shown without a restart.
//
// Thread-safe. Files that cannot be used at the start are kInvalid and named; caught half-way
// through a rotation, what was shown before is shown on.
#pragma once

#include <memory>
#include <string>

#include "common/base/error.hpp"
#include "common/http/server/server.hpp"

namespace paceline::http {

/// PEM. The first certificate of the file is the server's, its chain follows.
struct ServerCertificate {
  std::string certificate_file;
  std::string key_file;
};

/// For ServerOptions::connections. TLS 1.2 and later.
Result<std::shared_ptr<ConnectionFactory>> make_tls_connections(
    const ServerCertificate& certificate);

}  // namespace paceline::http
