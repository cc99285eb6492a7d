// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <set>
#include <vector>

#include "common/base/unique_fd.hpp"
#include "common/net/ports.hpp"

namespace paceline::launcher {
namespace {

enum class Reuse { kNo, kYes };

/// Invalid if the port cannot be bound.
UniqueFd listen_at(std::uint16_t port, Reuse reuse = Reuse::kNo) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = reuse == Reuse::kYes ? 1 : 0;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return {};
  if (::listen(fd.get(), 1) != 0) return {};
  return fd;
}

TEST(FreePort, IsOutsideOfWhatOutgoingConnectionsAreGiven) {
  for (int i = 0; i < 50; ++i) {
    const std::uint16_t port = net::free_port("127.0.0.1", 0);
    EXPECT_GE(port, 20000);
    EXPECT_LT(port, 25000);
  }
}

TEST(FreePort, IsThePreferredOneUnlessSomebodyListensThere) {
  const std::uint16_t preferred = net::free_port("127.0.0.1", 0);
  EXPECT_EQ(net::free_port("127.0.0.1", preferred), preferred);
  const UniqueFd listener = listen_at(preferred);
  ASSERT_TRUE(listener.valid());
  const std::uint16_t other = net::free_port("127.0.0.1", preferred);
  EXPECT_NE(other, preferred);
  EXPECT_NE(other, 0);
}

TEST(HeldPort, IsOfOneHolderAlone) {
  std::vector<net::HeldPort> held;
  std::set<std::uint16_t> ports;
  // A fifth of the range: without holding, some ports would be drawn twice (with probability 1 -
  // 10^-43).
  for (int i = 0; i < 1000; ++i) ports.insert(held.emplace_back("127.0.0.1").port());
  EXPECT_EQ(ports.size(), held.size());
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(ports.contains(net::free_port("127.0.0.1", 0)));
}

TEST(HeldPort, LetsTheServerListenThatItIsKeptFor) {
  const net::HeldPort held("127.0.0.1");
  EXPECT_GE(held.port(), 20000);
  EXPECT_LT(held.port(), 25000);
  EXPECT_FALSE(listen_at(held.port()).valid());
  const UniqueFd server = listen_at(held.port(), Reuse::kYes);
  EXPECT_TRUE(server.valid());
  EXPECT_FALSE(listen_at(held.port(), Reuse::kYes).valid());
}

TEST(HeldPort, IsFreeAgainAfterwards) {
  const std::uint16_t port = net::HeldPort("127.0.0.1").port();
  EXPECT_TRUE(listen_at(port).valid());
}

TEST(HeldPort, OfWhatIsNoAddressIsNone) { EXPECT_EQ(net::HeldPort("localhost").port(), 0); }

TEST(FreePort, OfWhatIsNoAddressIsNone) { EXPECT_EQ(net::free_port("localhost", 0), 0); }

}  // namespace
}  // namespace paceline::launcher
