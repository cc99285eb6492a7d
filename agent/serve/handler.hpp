// SPDX-License-Identifier: Apache-2.0
// /v1/fabric and /v1/checks of this node, for those who may read its NodeFabric, and /v1/links, for
// those who may have its links measured; every other answer says why in JSON.
#pragma once

#include "agent/links/service.hpp"
#include "agent/serve/access.hpp"
#include "agent/serve/documents.hpp"
#include "common/http/server/server.hpp"

namespace paceline::agent {

/// Borrows all. Thread-safe. Without a LinkService links are not measured here.
http::ServerHandler serve_documents(const Documents& documents, AccessReview& access,
                                    LinkService* links = nullptr);

}  // namespace paceline::agent
