// SPDX-License-Identifier: Apache-2.0
#include "launcher/network.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>
#include <random>
#include <vector>

#include "common/telemetry/unique_fd.hpp"

namespace paceline::launcher {
namespace {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

SocketAddress numeric(const std::string& address, std::uint16_t port) {
  SocketAddress result;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&result.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&result.storage);
  if (::inet_pton(AF_INET, address.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    result.size = sizeof *v4;
  } else if (::inet_pton(AF_INET6, address.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    result.size = sizeof *v6;
  }
  return result;
}

}  // namespace

std::string interface_of(const std::string& address) {
  const SocketAddress wanted = numeric(address, 0);
  if (wanted.size == 0) return "";
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return "";
  std::string name;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != wanted.storage.ss_family) continue;
    const bool same =
        wanted.storage.ss_family == AF_INET
            ? std::memcmp(&reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr,
                          &reinterpret_cast<const sockaddr_in*>(&wanted.storage)->sin_addr, sizeof(in_addr)) == 0
            : std::memcmp(&reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr)->sin6_addr,
                          &reinterpret_cast<const sockaddr_in6*>(&wanted.storage)->sin6_addr, sizeof(in6_addr)) == 0;
    if (same) {
      name = entry->ifa_name;
      break;
    }
  }
  ::freeifaddrs(list);
  return name;
}

std::uint16_t free_port(const std::string& address, std::uint16_t preferred) {
  // The one who asked listens only seconds later (rank 0 imports its framework first). So not a port as the system gives it,
  // which may be the next connection's by then: one below the range of outgoing connections (ip_local_port_range, from 32768
  // on most machines) and of Kubernetes' node ports (from 30000).
  static constexpr std::uint16_t kFirst = 20000;
  static constexpr std::uint16_t kCount = 5000;
  static constexpr int kTries = 20;
  std::vector<std::uint16_t> ports;
  if (preferred != 0) ports.push_back(preferred);
  std::random_device random;
  for (int i = 0; i < kTries; ++i) ports.push_back(static_cast<std::uint16_t>(kFirst + random() % kCount));
  ports.push_back(0);
  for (const std::uint16_t port : ports) {
    SocketAddress wanted = numeric(address, port);
    const telemetry::UniqueFd fd(::socket(wanted.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int yes = 1;
    if (fd.valid()) ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (!fd.valid() || ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&wanted.storage), wanted.size) != 0) continue;
    socklen_t size = sizeof wanted.storage;
    if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&wanted.storage), &size) != 0) continue;
    return ntohs(wanted.storage.ss_family == AF_INET
                     ? reinterpret_cast<const sockaddr_in*>(&wanted.storage)->sin_port
                     : reinterpret_cast<const sockaddr_in6*>(&wanted.storage)->sin6_port);
  }
  return 0;
}

}  // namespace paceline::launcher
