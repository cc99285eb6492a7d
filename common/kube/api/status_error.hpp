// SPDX-License-Identifier: Apache-2.0
// Turns an API server's answer (HTTP status and metav1.Status) into an Error. Pure. The message is
// the server's own, after a prefix that says what was asked.
#pragma once

#include <string_view>

#include "common/base/error.hpp"
#include "common/http/transport.hpp"

namespace paceline::kube {

/// `what`: "create pods default/x".
Error error_of(int http_status, std::string_view body, std::string_view what);
/// For the Status object in an ERROR event of a watch.
Error error_of_status(std::string_view status, std::string_view what);

}  // namespace paceline::kube
