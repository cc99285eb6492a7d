// SPDX-License-Identifier: Apache-2.0
// A peer of a telemetry socket that can send arbitrary bytes.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstring>
#include <vector>

namespace paceline::telemetry::test {

/// Sends at most 16 descriptors; true if everything was sent.
inline bool send_with_descriptors(int socket, const void* data, std::size_t size,
                                  const std::vector<int>& fds, int flags = 0) {
  iovec part{const_cast<void*>(data), size};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 16)] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    std::memcpy(CMSG_DATA(header), fds.data(), sizeof(int) * fds.size());
  }
  return ::sendmsg(socket, &message, MSG_NOSIGNAL | flags) == static_cast<ssize_t>(size);
}

}  // namespace paceline::telemetry::test
