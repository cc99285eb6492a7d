// SPDX-License-Identifier: Apache-2.0
// One message with descriptors (SCM_RIGHTS) over a SOCK_SEQPACKET socket. Launcher and agent hand
// rings over with it.
//
// `receive_message` returns an owner for every descriptor that arrives, so that none leaks. Not
// thread-safe. Failures are values.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <vector>

#include "common/base/unique_fd.hpp"

namespace paceline::telemetry {

struct Received {
  // the result of recvmsg (with errno); the whole size even if the message was truncated
  ssize_t size = -1;
  std::vector<UniqueFd> descriptors;
  bool again() const;  // no message is waiting
};

/// Never waits. Takes at most 8 descriptors; the kernel closes the rest.
Received receive_message(int socket, void* into, std::size_t bytes);

/// Never waits. `descriptor` -1 sends no descriptor. False, with errno, if the message was not sent
/// whole.
bool send_message(int socket, const void* from, std::size_t bytes, int descriptor);

}  // namespace paceline::telemetry
