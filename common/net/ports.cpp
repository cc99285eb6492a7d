// SPDX-License-Identifier: Apache-2.0
#include "common/net/ports.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstring>
#include <random>

#include "common/net/socket_address.hpp"

namespace paceline::net {
namespace {

void allow_reuse(const UniqueFd& socket) {
  const int yes = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
}

enum class Bind { kAlone, kAsServersDo };

UniqueFd bound(const std::string& address, std::uint16_t port, Bind how) {
  const SocketAddress wanted = numeric(address, port);
  UniqueFd socket(::socket(wanted.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return {};
  if (how == Bind::kAsServersDo) allow_reuse(socket);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&wanted.storage), wanted.size) != 0)
    return {};
  return socket;
}

/// A socket bound to a port that no other socket uses.
UniqueFd draw(const std::string& address) {
  // The caller's program listens only seconds later (rank 0 imports its framework first). A port
  // that the kernel chooses could by then belong to an outgoing connection. So draw a port below
  // the range of outgoing connections (ip_local_port_range, from 32768 on most machines) and below
  // Kubernetes' node ports (from 30000).
  static constexpr std::uint16_t kFirst = 20000;
  static constexpr std::uint16_t kCount = 5000;
  static constexpr int kTries = 20;
  std::random_device random;
  for (int i = 0; i < kTries; ++i) {
    auto socket =
        bound(address, static_cast<std::uint16_t>(kFirst + random() % kCount), Bind::kAlone);
    if (socket.valid()) return socket;
  }
  return bound(address, 0, Bind::kAlone);
}

constexpr int kFirstOfRanges = 25000;
constexpr int kPortsOfRanges = 4000;
constexpr int kBlock = 8;  // ports that are claimed together
constexpr int kBlocks = kPortsOfRanges / kBlock;

/// A claim on a block of ports. An abstract name belongs to a network namespace, as ports do, and
/// goes with the process. No port is bound, so that any program can listen there.
UniqueFd claim(int block) {
  const std::string name =
      std::string(1, '\0') + "paceline-ports-" + std::to_string(kFirstOfRanges + block * kBlock);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, name.data(), name.size());
  UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  if (!socket.valid() ||
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0)
    return {};
  return socket;
}

}  // namespace

std::string interface_of(const std::string& address) {
  const SocketAddress wanted = numeric(address, 0);
  if (wanted.size == 0) return "";
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return "";
  std::string name;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != wanted.storage.ss_family)
      continue;
    const bool same =
        wanted.storage.ss_family == AF_INET
            ? std::memcmp(&reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr,
                          &reinterpret_cast<const sockaddr_in*>(&wanted.storage)->sin_addr,
                          sizeof(in_addr)) == 0
            : std::memcmp(&reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr)->sin6_addr,
                          &reinterpret_cast<const sockaddr_in6*>(&wanted.storage)->sin6_addr,
                          sizeof(in6_addr)) == 0;
    if (same) {
      name = entry->ifa_name;
      break;
    }
  }
  ::freeifaddrs(list);
  return name;
}

std::uint16_t free_port(const std::string& address, std::uint16_t preferred) {
  // Servers set SO_REUSEADDR, so that a closed connection does not keep them from listening. Test
  // the preferred port the same way.
  if (preferred != 0 && bound(address, preferred, Bind::kAsServersDo).valid()) return preferred;
  return port_of(draw(address));
}

HeldPort::HeldPort(const std::string& address) : socket_(draw(address)), port_(port_of(socket_)) {
  // Set only after the bind: the port is ours alone, and the program that listens there later may
  // still share it.
  if (socket_.valid()) allow_reuse(socket_);
}

PortRange::PortRange(const std::string& address, int count) {
  const int needed = (count + kBlock - 1) / kBlock;
  if (needed <= 0 || needed > kBlocks) return;
  std::random_device random;
  const int places = kBlocks - needed + 1;
  const int start = static_cast<int>(random() % static_cast<unsigned>(places));
  for (int i = 0; i < places; ++i) {
    const int block = (start + i) % places;
    const int first = kFirstOfRanges + block * kBlock;
    claims_.clear();
    bool free = true;
    for (int k = 0; free && k < needed; ++k) {
      claims_.push_back(claim(block + k));
      free = claims_.back().valid();
    }
    for (int k = 0; free && k < count; ++k)
      free = bound(address, static_cast<std::uint16_t>(first + k), Bind::kAlone).valid();
    if (!free) continue;
    first_ = static_cast<std::uint16_t>(first);
    return;
  }
  claims_.clear();
}

}  // namespace paceline::net
