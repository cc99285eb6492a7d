// SPDX-License-Identifier: Apache-2.0
#include "comm/bootstrap/peer_info.hpp"

#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "comm/transport/address.hpp"
#include "comm/transport/shm/memory_file.hpp"

namespace paceline::comm {
namespace {

// paceline/comm/_handle.py has the same text, for a rank that cannot load the library.
constexpr const char* kVersion = "paceline-comm 3";
constexpr int kBacklog = 4096;
constexpr std::size_t kMostEndpoints = 16;  // a hop has at most this many connections
static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));

std::unexpected<Error> system_failure(const std::string& what) {
  const int error = errno;
  return std::unexpected(Error{PACELINE_ESYSTEM, -1, what + ": " + std::strerror(error)});
}

std::string random_name() {
  std::array<unsigned char, 16> bytes{};
  if (::syscall(SYS_getrandom, bytes.data(), bytes.size(), 0) != static_cast<long>(bytes.size()))
    return "";
  std::string text;
  for (const unsigned char byte : bytes)
    for (const int digit : {byte >> 4, byte & 15}) text += "0123456789abcdef"[digit];
  return text;
}

// Identifies the running kernel and the network namespace. Ranks with the same value can share
// memory and see each other's abstract sockets.
std::string own_host() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::array<char, 64> space{};
  const ssize_t length = ::readlink("/proc/self/ns/net", space.data(), space.size() - 1);
  return boot + "/" + (length > 0 ? space.data() : "");
}

std::string print(const PeerInfo& info) {
  std::ostringstream text;
  text << kVersion << "\nrefusal=" << info.refusal << "\nhost=" << info.host;
  const char* between = "\naddress=";
  for (const Endpoint& one : info.endpoints) text << std::exchange(between, ",") << one.address;
  between = "\nport=";
  for (const Endpoint& one : info.endpoints) text << std::exchange(between, ",") << one.port;
  text << "\nnonce=" << info.nonce << "\nlistener=" << info.listener << "\nagreed=" << info.agreed
       << "\nnics=" << info.nics << "\nno_rdma=" << info.no_rdma << "\n";
  return text.str();
}

std::expected<base::Fd, Error> listen_at(const std::string& address) {
  const Address where = numeric_address(address, 0);
  if (where.length == 0)
    return std::unexpected(
        Error{PACELINE_EINVAL, -1, "address: '" + address + "' is no numeric IP address"});
  base::Fd listener(
      ::socket(where.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener || ::bind(listener.get(), where.get(), where.length) != 0 ||
      ::listen(listener.get(), kBacklog) != 0)
    return system_failure("address: cannot listen on " + address + ": give one of this host's");
  return listener;
}

// The port field is at the same offset in IPv4 and IPv6 addresses.
std::uint16_t port_of(const base::Fd& listener) {
  sockaddr_in6 bound{};
  socklen_t length = sizeof bound;
  ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&bound), &length);
  return ntohs(bound.sin6_port);
}

bool parse(const std::string& text, PeerInfo& info) {
  std::istringstream lines(text);
  std::string line;
  if (!std::getline(lines, line) || line != kVersion) return false;
  std::map<std::string, std::string> values;
  while (std::getline(lines, line)) {
    const std::size_t equals = line.find('=');
    if (equals != std::string::npos) values[line.substr(0, equals)] = line.substr(equals + 1);
  }
  info.host = values["host"];
  std::istringstream addresses(values["address"]);
  std::istringstream ports(values["port"]);
  std::string port;
  for (Endpoint one; std::getline(addresses, one.address, ',') && std::getline(ports, port, ',');) {
    one.port = static_cast<std::uint16_t>(std::strtoul(port.c_str(), nullptr, 10));
    info.endpoints.push_back(one);
  }
  info.nonce = values["nonce"];
  info.listener = values["listener"];
  info.agreed = values["agreed"];
  info.nics = static_cast<std::uint32_t>(std::strtoul(values["nics"].c_str(), nullptr, 10));
  info.no_rdma = values["no_rdma"];
  info.refusal = values["refusal"];
  return !info.refusal.empty() || (!info.endpoints.empty() && info.nonce.size() == 32);
}

}  // namespace

std::expected<void, Error> tell(const Store& store, const std::string& key,
                                const std::string& text) {
  const std::string name = store.name + "/" + key;
  if (store.functions.set(store.functions.context, name.c_str(), text.data(), text.size()) == 0)
    return {};
  return std::unexpected(
      Error{PACELINE_COMM_ESTORE, -1, "the store's set of '" + name + "' failed"});
}

std::expected<std::string, Error> read_key(const Store& store, const std::string& last,
                                           std::uint32_t rank, Clock::time_point deadline) {
  std::array<char, 16384> value;
  std::uint64_t size = 0;
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  const std::string key = store.name + "/" + last;
  const int code =
      store.functions.get(store.functions.context, key.c_str(), value.data(), value.size(), &size,
                          static_cast<std::int32_t>(std::max<std::int64_t>(left, 0)));
  const std::string who = "rank " + std::to_string(rank);
  if (code == 1)
    return std::unexpected(Error{PACELINE_COMM_EPEER, static_cast<int>(rank),
                                 who + " has not come in the time that timeout_ms allows"});
  if (code != 0 || size > value.size())
    return std::unexpected(
        Error{PACELINE_COMM_ESTORE, -1, "the store's get of '" + key + "' failed"});
  return std::string(value.data(), size);
}

std::expected<Listeners, Error> open_listeners(PeerInfo& info, const std::string& addresses) {
  if (info.host.empty()) info.host = own_host();
  info.nonce = random_name();
  info.listener = "paceline-comm-" + random_name();
  if (info.nonce.empty()) return system_failure("random bytes");

  Listeners listeners;
  std::istringstream list(addresses.empty() ? own_address() : addresses);
  for (std::string one; std::getline(list, one, ',');) {
    auto listener = listen_at(one);
    if (!listener) return std::unexpected(listener.error());
    info.endpoints.push_back({one, port_of(*listener)});
    listeners.tcp.push_back(std::move(*listener));
  }
  if (info.endpoints.empty() || info.endpoints.size() > kMostEndpoints)
    return std::unexpected(Error{PACELINE_EINVAL, -1,
                                 "address: '" + addresses + "': give 1 to " +
                                     std::to_string(kMostEndpoints) +
                                     " numeric IP addresses, separated by commas"});
  listeners.memory = listen_local(info.listener);
  if (!listeners.memory) info.listener.clear();
  return listeners;
}

void pair_endpoints(std::vector<PeerInfo>& peers) {
  std::map<std::string, std::set<std::string>> hosts;  // for each address, the hosts that have it
  for (const PeerInfo& info : peers)
    for (const Endpoint& one : info.endpoints) hosts[one.address].insert(info.host);
  std::size_t least = peers.front().endpoints.size();
  for (PeerInfo& info : peers) {
    const Endpoint first = info.endpoints.front();
    std::erase_if(info.endpoints,
                  [&](const Endpoint& one) { return hosts[one.address].size() > 1; });
    // All addresses are shared: the "hosts" are one machine under several names. Keep the first.
    if (info.endpoints.empty()) info.endpoints.push_back(first);
    least = std::min(least, info.endpoints.size());
  }
  for (PeerInfo& info : peers) info.endpoints.resize(least);
}

void refuse(const Store& store, std::uint32_t rank, const std::string& why) {
  PeerInfo info;
  info.refusal = why;
  static_cast<void>(tell(store, std::to_string(rank), print(info)));
}

std::expected<std::vector<PeerInfo>, Error> exchange(const Store& store, std::uint32_t rank,
                                                     std::uint32_t ranks, const PeerInfo& info,
                                                     Clock::time_point deadline) {
  if (auto told = tell(store, std::to_string(rank), print(info)); !told)
    return std::unexpected(told.error());
  std::vector<PeerInfo> peers(ranks);
  for (std::uint32_t other = 0; other < ranks; ++other) {
    const auto read = read_key(store, std::to_string(other), other, deadline);
    if (!read) return std::unexpected(read.error());
    const std::string who = "rank " + std::to_string(other);
    if (!parse(*read, peers[other]))
      return std::unexpected(Error{PACELINE_COMM_EPEER, static_cast<int>(other),
                                   who + " has another version of this library"});
    if (!peers[other].refusal.empty())
      return std::unexpected(Error{PACELINE_COMM_EPEER, static_cast<int>(other),
                                   who + " does not come: " + peers[other].refusal});
    if (peers[other].agreed != info.agreed)
      return std::unexpected(Error{PACELINE_COMM_EPEER, static_cast<int>(other),
                                   who + " was given '" + peers[other].agreed + "' where rank " +
                                       std::to_string(rank) + " was given '" + info.agreed +
                                       "': give all ranks the same"});
  }
  return peers;
}

}  // namespace paceline::comm
