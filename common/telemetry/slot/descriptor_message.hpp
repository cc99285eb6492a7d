// SPDX-License-Identifier: Apache-2.0
// One message with descriptors (SCM_RIGHTS) over a SOCK_SEQPACKET socket, as rings are handed over:
// what both ends share.
//
// Every descriptor that arrives is owned by what `receive_message` fills, so that none leaks into
// us. Not thread-safe. Failure is a value.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <vector>

#include "common/base/unique_fd.hpp"

namespace paceline::telemetry {

struct Received {
  ssize_t size = -1;  // as recvmsg says, with errno; the whole size even where it did not fit
  std::vector<UniqueFd> descriptors;
  bool again() const;  // nothing is there now
};

/// Never waits. Takes at most 8 descriptors; the kernel closes more.
Received receive_message(int socket, void* into, std::size_t bytes);

/// Never waits; `descriptor` -1 sends none. False, with errno, where it was not sent whole.
bool send_message(int socket, const void* from, std::size_t bytes, int descriptor);

}  // namespace paceline::telemetry
