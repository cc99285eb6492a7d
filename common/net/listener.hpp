// SPDX-License-Identifier: Apache-2.0
// Opens a listening TCP socket. The address "::" means every address of the machine, of IPv6 and
// IPv4, so that one setting serves clusters of either family. If the kernel has no IPv6, the socket
// listens on 0.0.0.0 instead.
//
// The caller owns the socket, which is non-blocking. Stateless, thread-safe. Failure: an Error that
// names the address; its code is kForbidden for a port that needs a privilege, kInvalid for text
// that is no address, otherwise kExhausted.
#pragma once

#include "common/base/error.hpp"
#include "common/base/unique_fd.hpp"
#include "common/net/address.hpp"

namespace paceline::net {

struct Listener {
  UniqueFd socket;
  bool v6 = false;
  std::uint16_t port = 0;
};

/// Another program has the port: kAlreadyExists.
Result<Listener> listen_on(const Address& address, int backlog);

}  // namespace paceline::net
