// SPDX-License-Identifier: Apache-2.0
#include "launcher/network.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "common/telemetry/unique_fd.hpp"

namespace paceline::launcher {
namespace {

telemetry::UniqueFd listen_at(std::uint16_t port) {
  telemetry::UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(::listen(fd.get(), 1), 0);
  return fd;
}

TEST(FreePort, IsOutsideOfWhatOutgoingConnectionsAreGiven) {
  for (int i = 0; i < 50; ++i) {
    const std::uint16_t port = free_port("127.0.0.1", 0);
    EXPECT_GE(port, 20000);
    EXPECT_LT(port, 25000);
  }
}

TEST(FreePort, IsThePreferredOneUnlessSomebodyListensThere) {
  const std::uint16_t preferred = free_port("127.0.0.1", 0);
  EXPECT_EQ(free_port("127.0.0.1", preferred), preferred);
  const telemetry::UniqueFd listener = listen_at(preferred);
  const std::uint16_t other = free_port("127.0.0.1", preferred);
  EXPECT_NE(other, preferred);
  EXPECT_NE(other, 0);
}

TEST(FreePort, OfWhatIsNoAddressIsNone) { EXPECT_EQ(free_port("localhost", 0), 0); }

}  // namespace
}  // namespace paceline::launcher
