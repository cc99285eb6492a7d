// SPDX-License-Identifier: Apache-2.0
// From an API server's answer (HTTP status and metav1.Status) to an Error. Pure. The message is the
// server's own, prefixed by what was asked.
#pragma once

#include <string_view>

#include "common/base/error.hpp"
#include "common/http/transport.hpp"

namespace paceline::kube {

/// `what`: "create pods default/x".
Error error_of(int http_status, std::string_view body, std::string_view what);
/// The Status object inside an ERROR event of a watch.
Error error_of_status(std::string_view status, std::string_view what);

}  // namespace paceline::kube
