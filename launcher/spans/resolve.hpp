// SPDX-License-Identifier: Apache-2.0
// Addresses of a host by DNS. A static program cannot call getaddrinfo, which loads libraries; the
// resolver of libc asks the servers of /etc/resolv.conf, with its search domains.
//
// Thread-safe. Blocks for a few seconds at most.
#pragma once

#include <string>
#include <vector>

#include "common/base/error.hpp"

namespace paceline::spans {

/// Numeric addresses; `host` itself if it is one. At least one, or an Error that names the host.
Result<std::vector<std::string>> resolve(const std::string& host);

}  // namespace paceline::spans
