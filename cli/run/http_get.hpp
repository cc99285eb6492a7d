// SPDX-License-Identifier: Apache-2.0
// One GET of a launcher on this machine. Asynchronous; the callback comes exactly once, on the
// io_context's thread, with the body of a 200 or nothing. Bounded: 3 s, 16 MiB.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace boost::asio {
class io_context;
}

namespace paceline::cli {

void http_get(boost::asio::io_context& io, std::uint16_t port, const std::string& target,
              const std::string& authorization,
              std::function<void(std::optional<std::string>)> done);

}  // namespace paceline::cli
