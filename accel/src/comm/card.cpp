// SPDX-License-Identifier: Apache-2.0
#include "card.hpp"

#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include "address.hpp"
#include "memory_file.hpp"

namespace paceline::comm {
namespace {

constexpr const char* kVersion = "paceline-comm 1";
constexpr int kBacklog = 4096;

std::unexpected<Error> system_failure(const std::string& what) {
  const int error = errno;
  return std::unexpected(Error{PACELINE_ESYSTEM, -1, what + ": " + std::strerror(error)});
}

std::string random_name() {
  std::array<unsigned char, 16> bytes{};
  if (::syscall(SYS_getrandom, bytes.data(), bytes.size(), 0) != static_cast<long>(bytes.size())) return "";
  std::string text;
  for (const unsigned char byte : bytes)
    for (const int digit : {byte >> 4, byte & 15}) text += "0123456789abcdef"[digit];
  return text;
}

// Equal where memory can be shared and abstract sockets are seen: the same running kernel, the same network namespace.
std::string own_host() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::array<char, 64> space{};
  const ssize_t length = ::readlink("/proc/self/ns/net", space.data(), space.size() - 1);
  return boot + "/" + (length > 0 ? space.data() : "");
}

std::string print(const Card& card) {
  std::ostringstream text;
  text << kVersion << "\nhost=" << card.host << "\naddress=" << card.address << "\nport=" << card.port
       << "\nnonce=" << card.nonce << "\ndoor=" << card.door << "\nagreed=" << card.agreed << "\n";
  return text.str();
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
  card.address = values["address"];
  card.port = static_cast<std::uint16_t>(std::strtoul(values["port"].c_str(), nullptr, 10));
  card.nonce = values["nonce"];
  card.door = values["door"];
  card.agreed = values["agreed"];
  return card.port != 0 && card.nonce.size() == 32;
}

}  // namespace

std::expected<void, Error> tell(const Store& store, const std::string& key, const std::string& text) {
  const std::string name = store.name + "/" + key;
  if (store.functions.set(store.functions.context, name.c_str(), text.data(), text.size()) == 0) return {};
  return std::unexpected(Error{PACELINE_COMM_ESTORE, -1, "the store's set of '" + name + "' failed"});
}

std::expected<std::string, Error> read_key(const Store& store, const std::string& last, std::uint32_t rank,
                                           Clock::time_point deadline) {
  std::array<char, 16384> value;
  std::uint64_t size = 0;
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  const std::string key = store.name + "/" + last;
  const int code = store.functions.get(store.functions.context, key.c_str(), value.data(), value.size(), &size,
                                       static_cast<std::int32_t>(std::max<std::int64_t>(left, 0)));
  const std::string who = "rank " + std::to_string(rank);
  if (code == 1)
    return std::unexpected(
        Error{PACELINE_COMM_EPEER, static_cast<int>(rank), who + " has not come in the time that timeout_ms allows"});
  if (code != 0 || size > value.size())
    return std::unexpected(Error{PACELINE_COMM_ESTORE, -1, "the store's get of '" + key + "' failed"});
  return std::string(value.data(), size);
}

std::expected<Doors, Error> open_doors(Card& card) {
  if (card.host.empty()) card.host = own_host();
  if (card.address.empty()) card.address = own_address();
  card.nonce = random_name();
  card.door = "paceline-comm-" + random_name();
  if (card.nonce.empty()) return system_failure("random bytes");

  const Address where = numeric_address(card.address, 0);
  if (where.length == 0)
    return std::unexpected(Error{PACELINE_EINVAL, -1, "address: '" + card.address + "' is no numeric IP address"});
  Doors doors;
  doors.tcp = Fd(::socket(where.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!doors.tcp || ::bind(doors.tcp.get(), where.get(), where.length) != 0 || ::listen(doors.tcp.get(), kBacklog) != 0)
    return system_failure("address: cannot listen on " + card.address + ": give one of this host's");
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  if (::getsockname(doors.tcp.get(), reinterpret_cast<sockaddr*>(&bound), &length) != 0)
    return system_failure("getsockname");
  sockaddr_in four{};
  sockaddr_in6 six{};
  std::memcpy(&four, &bound, sizeof four);
  std::memcpy(&six, &bound, sizeof six);
  card.port = ntohs(bound.ss_family == AF_INET ? four.sin_port : six.sin6_port);

  doors.memory = listen_local(card.door);
  if (!doors.memory) card.door.clear();
  return doors;
}

std::expected<std::vector<Card>, Error> exchange(const Store& store, std::uint32_t rank, std::uint32_t ranks,
                                                 const Card& card, Clock::time_point deadline) {
  if (auto told = tell(store, std::to_string(rank), print(card)); !told) return std::unexpected(told.error());
  std::vector<Card> cards(ranks);
  for (std::uint32_t other = 0; other < ranks; ++other) {
    const auto read = read_key(store, std::to_string(other), other, deadline);
    if (!read) return std::unexpected(read.error());
    const std::string who = "rank " + std::to_string(other);
    if (!parse(*read, cards[other]))
      return std::unexpected(
          Error{PACELINE_COMM_EPEER, static_cast<int>(other), who + " has another version of this library"});
    if (cards[other].agreed != card.agreed)
      return std::unexpected(Error{PACELINE_COMM_EPEER, static_cast<int>(other),
                                   who + " was given '" + cards[other].agreed + "' where rank " + std::to_string(rank) +
                                       " was given '" + card.agreed + "': give all ranks the same"});
  }
  return cards;
}

}  // namespace paceline::comm
