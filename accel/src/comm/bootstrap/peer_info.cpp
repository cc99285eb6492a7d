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

// and paceline/comm/_handle.py's, for a rank that has no library
constexpr const char* kVersion = "paceline-comm 2";
constexpr int kBacklog = 4096;
constexpr std::size_t kMostEndpoints = 16;  // as many as there may be connections of a hop
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

// Equal where memory can be shared and abstract sockets are seen: the same running kernel, the same
// network namespace.
std::string own_host() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::array<char, 64> space{};
  const ssize_t length = ::readlink("/proc/self/ns/net", space.data(), space.size() - 1);
  return boot + "/" + (length > 0 ? space.data() : "");
}

std::string print(const Card& card) {
  std::ostringstream text;
  text << kVersion << "\nrefusal=" << card.refusal << "\nhost=" << card.host;
  const char* between = "\naddress=";
  for (const Endpoint& one : card.endpoints) text << std::exchange(between, ",") << one.address;
  between = "\nport=";
  for (const Endpoint& one : card.endpoints) text << std::exchange(between, ",") << one.port;
  text << "\nnonce=" << card.nonce << "\ndoor=" << card.door << "\nagreed=" << card.agreed
       << "\nrails=" << card.rails << "\nno_rdma=" << card.no_rdma << "\n";
  return text.str();
}

std::expected<base::Fd, Error> listen_at(const std::string& address) {
  const Address where = numeric_address(address, 0);
  if (where.length == 0)
    return std::unexpected(
        Error{PACELINE_EINVAL, -1, "address: '" + address + "' is no numeric IP address"});
  base::Fd door(::socket(where.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!door || ::bind(door.get(), where.get(), where.length) != 0 ||
      ::listen(door.get(), kBacklog) != 0)
    return system_failure("address: cannot listen on " + address + ": give one of this host's");
  return door;
}

// In both families at the same place.
std::uint16_t port_of(const base::Fd& door) {
  sockaddr_in6 bound{};
  socklen_t length = sizeof bound;
  ::getsockname(door.get(), reinterpret_cast<sockaddr*>(&bound), &length);
  return ntohs(bound.sin6_port);
}

bool parse(const std::string& text, Card& card) {
  std::istringstream lines(text);
  std::string line;
  if (!std::getline(lines, line) || line != kVersion) return false;
  std::map<std::string, std::string> values;
  while (std::getline(lines, line)) {
    const std::size_t equals = line.find('=');
    if (equals != std::string::npos) values[line.substr(0, equals)] = line.substr(equals + 1);
  }
  card.host = values["host"];
  std::istringstream addresses(values["address"]);
  std::istringstream ports(values["port"]);
  std::string port;
  for (Endpoint one; std::getline(addresses, one.address, ',') && std::getline(ports, port, ',');) {
    one.port = static_cast<std::uint16_t>(std::strtoul(port.c_str(), nullptr, 10));
    card.endpoints.push_back(one);
  }
  card.nonce = values["nonce"];
  card.door = values["door"];
  card.agreed = values["agreed"];
  card.rails = static_cast<std::uint32_t>(std::strtoul(values["rails"].c_str(), nullptr, 10));
  card.no_rdma = values["no_rdma"];
  card.refusal = values["refusal"];
  return !card.refusal.empty() || (!card.endpoints.empty() && card.nonce.size() == 32);
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

std::expected<Doors, Error> open_doors(Card& card, const std::string& addresses) {
  if (card.host.empty()) card.host = own_host();
  card.nonce = random_name();
  card.door = "paceline-comm-" + random_name();
  if (card.nonce.empty()) return system_failure("random bytes");

  Doors doors;
  std::istringstream list(addresses.empty() ? own_address() : addresses);
  for (std::string one; std::getline(list, one, ',');) {
    auto door = listen_at(one);
    if (!door) return std::unexpected(door.error());
    card.endpoints.push_back({one, port_of(*door)});
    doors.tcp.push_back(std::move(*door));
  }
  if (card.endpoints.empty() || card.endpoints.size() > kMostEndpoints)
    return std::unexpected(Error{PACELINE_EINVAL, -1,
                                 "address: '" + addresses + "': give 1 to " +
                                     std::to_string(kMostEndpoints) +
                                     " numeric IP addresses, separated by commas"});
  doors.memory = listen_local(card.door);
  if (!doors.memory) card.door.clear();
  return doors;
}

void pair_endpoints(std::vector<Card>& cards) {
  std::map<std::string, std::set<std::string>> hosts;  // that have an address
  for (const Card& card : cards)
    for (const Endpoint& one : card.endpoints) hosts[one.address].insert(card.host);
  std::size_t least = cards.front().endpoints.size();
  for (Card& card : cards) {
    const Endpoint first = card.endpoints.front();
    std::erase_if(card.endpoints,
                  [&](const Endpoint& one) { return hosts[one.address].size() > 1; });
    // All of them: hosts that are only called so.
    if (card.endpoints.empty()) card.endpoints.push_back(first);
    least = std::min(least, card.endpoints.size());
  }
  for (Card& card : cards) card.endpoints.resize(least);
}

void refuse(const Store& store, std::uint32_t rank, const std::string& why) {
  Card card;
  card.refusal = why;
  static_cast<void>(tell(store, std::to_string(rank), print(card)));
}

std::expected<std::vector<Card>, Error> exchange(const Store& store, std::uint32_t rank,
                                                 std::uint32_t ranks, const Card& card,
                                                 Clock::time_point deadline) {
  if (auto told = tell(store, std::to_string(rank), print(card)); !told)
    return std::unexpected(told.error());
  std::vector<Card> cards(ranks);
  for (std::uint32_t other = 0; other < ranks; ++other) {
    const auto read = read_key(store, std::to_string(other), other, deadline);
    if (!read) return std::unexpected(read.error());
    const std::string who = "rank " + std::to_string(other);
    if (!parse(*read, cards[other]))
      return std::unexpected(Error{PACELINE_COMM_EPEER, static_cast<int>(other),
                                   who + " has another version of this library"});
    if (!cards[other].refusal.empty())
      return std::unexpected(Error{PACELINE_COMM_EPEER, static_cast<int>(other),
                                   who + " does not come: " + cards[other].refusal});
    if (cards[other].agreed != card.agreed)
      return std::unexpected(Error{PACELINE_COMM_EPEER, static_cast<int>(other),
                                   who + " was given '" + cards[other].agreed + "' where rank " +
                                       std::to_string(rank) + " was given '" + card.agreed +
                                       "': give all ranks the same"});
  }
  return cards;
}

}  // namespace paceline::comm
