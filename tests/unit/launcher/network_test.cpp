// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "common/base/unique_fd.hpp"
#include "common/net/listener.hpp"
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
  std::uint16_t preferred = 0;
  UniqueFd listener;
  // A program beside this one may take what was drawn.
  for (int i = 0; i < 20 && !listener.valid(); ++i) {
    preferred = net::free_port("127.0.0.1", 0);
    if (net::free_port("127.0.0.1", preferred) == preferred) listener = listen_at(preferred);
  }
  ASSERT_TRUE(listener.valid());
  const std::uint16_t other = net::free_port("127.0.0.1", preferred);
  EXPECT_NE(other, preferred);
  EXPECT_NE(other, 0);
}

/// Whether a connection to the port succeeds.
bool reaches(int family, std::uint16_t port) {
  const UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  v6.sin6_addr = in6addr_loopback;
  return family == AF_INET
             ? ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&v4), sizeof v4) == 0
             : ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&v6), sizeof v6) == 0;
}

bool has_v6() { return UniqueFd(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0)).valid(); }

TEST(Listener, OfEveryAddressIsReachedByBothFamilies) {
  const auto listener = net::listen_on({"::", 0}, 8);
  ASSERT_TRUE(listener.has_value()) << listener.error().message;
  EXPECT_EQ(listener->v6, has_v6());
  EXPECT_NE(listener->port, 0);
  EXPECT_TRUE(reaches(AF_INET, listener->port));
  EXPECT_EQ(reaches(AF_INET6, listener->port), has_v6());
}

/// From here on the kernel answers this process as if it had no IPv6.
bool deny_v6() {
  std::array filter{sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                    sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3),
                    sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[0])),
                    sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET6, 0, 1),
                    sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAFNOSUPPORT),
                    sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(Listener, WithoutIpv6InTheKernelListensOnIpv4) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (!deny_v6()) ::_exit(77);
    const auto listener = net::listen_on({"::", 0}, 8);
    ::_exit(listener && !listener->v6 && reaches(AF_INET, listener->port) ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "seccomp is not allowed";
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(Listener, NamesWhatItCannotListenOn) {
  const auto taken = net::listen_on({"127.0.0.1", 0}, 8);
  ASSERT_TRUE(taken.has_value());
  const auto second = net::listen_on({"127.0.0.1", taken->port}, 8);
  ASSERT_FALSE(second.has_value());
  EXPECT_NE(second.error().message.find("127.0.0.1:" + std::to_string(taken->port)),
            std::string::npos);
  EXPECT_EQ(net::listen_on({"localhost", 0}, 8).error().code, Code::kInvalid);
  EXPECT_FALSE(net::listen_on({"192.0.2.1", 0}, 8).has_value());
}

TEST(Address, IsWrittenAsItIsRead) {
  for (const char* text : {"10.0.0.7:29400", "[fd00::7]:29400", "[::]:8080"})
    EXPECT_EQ(net::to_string(net::parse_address(text).value()), text);
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
  bool listens = false;
  // A program beside this one may take what was held.
  for (int i = 0; i < 20 && !listens; ++i) {
    const std::uint16_t port = net::HeldPort("127.0.0.1").port();
    listens = listen_at(port).valid();
  }
  EXPECT_TRUE(listens);
}

TEST(HeldPort, OfWhatIsNoAddressIsNone) { EXPECT_EQ(net::HeldPort("localhost").port(), 0); }

TEST(PortRange, HasPortsThatNoOtherRangeHas) {
  std::vector<net::PortRange> ranges;
  std::set<int> ports;
  int wanted = 0;
  for (const int count : {1, 8, 9, 64, 1, 200}) {
    const std::uint16_t first = ranges.emplace_back("127.0.0.1", count).first();
    ASSERT_GE(first, 25000);
    ASSERT_LE(first + count, 29000);
    for (int i = 0; i < count; ++i) ports.insert(first + i);
    wanted += count;
  }
  EXPECT_EQ(ports.size(), static_cast<std::size_t>(wanted));
}

TEST(PortRange, AnyProgramMayListenThere) {
  const net::PortRange range("127.0.0.1", 2);
  EXPECT_TRUE(listen_at(range.first()).valid());
  EXPECT_TRUE(listen_at(static_cast<std::uint16_t>(range.first() + 1)).valid());
}

TEST(PortRange, LeavesOutWhatAProgramListensAt) {
  const pid_t child = ::fork();
  if (child == 0) {
    // Its own ports: the test takes nearly all of them.
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) ::_exit(77);
    const std::uint16_t taken = net::PortRange("0.0.0.0", 3999).first();
    const auto listener = net::listen_on({"0.0.0.0", 27000}, 8);
    const bool none = net::PortRange("0.0.0.0", 3999).first() == 0;
    ::_exit(taken == 25000 && listener && none ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "no namespaces here";
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(PortRange, OfTooManyPortsOrOfNoAddressIsNone) {
  EXPECT_EQ(net::PortRange("127.0.0.1", 4001).first(), 0);
  EXPECT_EQ(net::PortRange("localhost", 1).first(), 0);
}

TEST(FreePort, OfWhatIsNoAddressIsNone) { EXPECT_EQ(net::free_port("localhost", 0), 0); }

}  // namespace
}  // namespace paceline::launcher
