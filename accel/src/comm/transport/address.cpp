// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/address.hpp"

#include <ifaddrs.h>
#include <net/if.h>

#include <array>
#include <cstddef>
#include <cstring>

namespace paceline::comm {

Address numeric_address(const std::string& text, std::uint16_t port) {
  Address address;
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = htons(port);
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(port);
  if (::inet_pton(AF_INET, text.c_str(), &four.sin_addr) == 1) {
    std::memcpy(&address.storage, &four, sizeof four);
    address.length = sizeof four;
  } else if (::inet_pton(AF_INET6, text.c_str(), &six.sin6_addr) == 1) {
    std::memcpy(&address.storage, &six, sizeof six);
    address.length = sizeof six;
  }
  return address;
}

Address abstract_address(const std::string& name) {
  Address address;
  sockaddr_un local{};
  local.sun_family = AF_UNIX;
  if (name.empty() || name.size() + 1 > sizeof local.sun_path) return address;
  std::memcpy(local.sun_path + 1, name.data(), name.size());
  std::memcpy(&address.storage, &local, sizeof local);
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

std::string local_address(int socket) {
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &length) != 0) return "";
  sockaddr_in four{};
  sockaddr_in6 six{};
  std::memcpy(&four, &own, sizeof four);
  std::memcpy(&six, &own, sizeof six);
  const void* const address =
      own.ss_family == AF_INET ? static_cast<const void*>(&four.sin_addr) : &six.sin6_addr;
  std::array<char, INET6_ADDRSTRLEN> text{};
  const char* const printed = ::inet_ntop(own.ss_family, address, text.data(), text.size());
  return printed == nullptr ? "" : printed;
}

std::string own_address() {
  ifaddrs* list = nullptr;
  std::string found = "127.0.0.1";
  if (::getifaddrs(&list) != 0) return found;
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    if ((one->ifa_flags & IFF_UP) == 0 || (one->ifa_flags & IFF_LOOPBACK) != 0) continue;
    sockaddr_in four{};
    std::memcpy(&four, one->ifa_addr, sizeof four);
    std::array<char, INET_ADDRSTRLEN> text{};
    if (::inet_ntop(AF_INET, &four.sin_addr, text.data(), text.size()) == nullptr) continue;
    found = text.data();
    break;
  }
  ::freeifaddrs(list);
  return found;
}

}  // namespace paceline::comm
