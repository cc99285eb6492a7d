// SPDX-License-Identifier: Apache-2.0
// /v1/fabric and /v1/checks of this node, for those who may read its NodeFabric; every other answer says why in JSON.
#pragma once

#include "agent/serve/access.hpp"
#include "agent/serve/documents.hpp"
#include "common/http/server/server.hpp"

namespace paceline::agent {

/// Borrows both. Thread-safe.
http::ServerHandler serve_documents(const Documents& documents, AccessReview& access);

}  // namespace paceline::agent
