// SPDX-License-Identifier: Apache-2.0
// A bearer token in a file, as `paceline measure --agent-token` and an agent that asks its peer use
// it. Kubernetes clients use kube::TokenSource instead, which also renews tokens.
#pragma once

#include <string>

#include "common/base/error.hpp"

namespace paceline::http {

/// The first line of the file. kInvalid names the file if it holds no token.
Result<std::string> read_token(const std::string& file);

}  // namespace paceline::http
