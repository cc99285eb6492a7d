// SPDX-License-Identifier: Apache-2.0
// The handler of the agent's TLS server: /v1/fabric and /v1/checks for clients that may read the
// NodeFabric, and /v1/links for clients that may measure. main.cpp passes it to the server. Every
// other answer is JSON that says why.
#pragma once

#include "agent/links/service.hpp"
#include "agent/serve/access.hpp"
#include "agent/serve/documents.hpp"
#include "common/http/server/server.hpp"

namespace paceline::agent {

/// Borrows its arguments. Thread-safe. If `links` is null, this agent does not measure.
http::ServerHandler serve_documents(const Documents& documents, AccessReview& access,
                                    LinkService* links = nullptr);

}  // namespace paceline::agent
