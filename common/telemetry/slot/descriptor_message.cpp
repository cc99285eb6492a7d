// SPDX-License-Identifier: Apache-2.0
#include "common/telemetry/slot/descriptor_message.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace paceline::telemetry {
namespace {

constexpr std::size_t kMostDescriptors = 8;

}  // namespace

bool Received::again() const { return size < 0 && (errno == EAGAIN || errno == EINTR); }

Received receive_message(int socket, void* into, std::size_t bytes) {
  iovec part{into, bytes};
  // Room for several descriptors: all that a peer sends are received and closed, so none leaks.
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMostDescriptors)];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  Received received;
  received.size = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT | MSG_TRUNC);
  if (received.size < 0) return received;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
      received.descriptors.emplace_back(fd);
    }
  }
  return received;
}

bool send_message(int socket, const void* from, std::size_t bytes, int descriptor) {
  iovec part{const_cast<void*>(from), bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
  }
  return ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(bytes);
}

}  // namespace paceline::telemetry
