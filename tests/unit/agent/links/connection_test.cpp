// SPDX-License-Identifier: Apache-2.0
// Measurements between two ends in one process, over real sockets on loopback, and hostile peers on
// either end. Values only have to be plausible, because the machine may do other work.
#include "common/base/log.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "agent/links/prober.hpp"
#include "agent/links/responder.hpp"

namespace paceline::agent {
namespace {

using namespace std::chrono_literals;

constexpr auto kLong = 30s;

/// A connection of a test that acts as one end.
struct End {
  End(const std::string& address, std::uint16_t port) : fd(connect_to(address, port, until())) {}
  explicit End(UniqueFd own) : fd(std::move(own)) {}
  Until until() { return {clock, clock.steady() + kLong, {}}; }
  bool send(std::span<const unsigned char> bytes) {
    return send_all(fd->get(), bytes, until()).has_value();
  }
  bool receive(std::size_t count) {
    std::vector<unsigned char> bytes(count);
    return receive_all(fd->get(), bytes, until()).has_value();
  }
  /// Waits until the other end has closed, and discards what it sends before.
  bool closed() {
    std::vector<unsigned char> bytes(65536);
    while (wait_for(fd->get(), POLLIN, until())) {
      const ssize_t got = ::recv(fd->get(), bytes.data(), bytes.size(), 0);
      if (got == 0 || (got < 0 && errno == ECONNRESET)) return true;
    }
    return false;
  }
  SystemClock clock;
  Result<UniqueFd> fd;
};

class Answering : public testing::Test {
 protected:
  Ticket offer(std::chrono::milliseconds life = kLong, std::chrono::milliseconds patience = kLong) {
    responder.emplace(
        clock, ResponderOptions{.address = "127.0.0.1", .ticket_life = life, .patience = patience});
    limiter.emplace(
        clock, RateLimits{.after_success = 2000s, .after_failure = 1000s, .after_nothing = 5s});
    auto ticket = responder->offer(std::move(*limiter->begin("x")));
    EXPECT_TRUE(ticket);
    return *ticket;
  }
  /// The outcome, as seconds until the peer may retry.
  std::chrono::seconds ended() {
    while (true) {
      const auto again = limiter->begin("x");
      if (!again && again.error().in > 10s) return again.error().in;
      std::this_thread::sleep_for(5ms);
    }
  }
  SystemClock clock;
  std::optional<RateLimiter> limiter;
  std::optional<Responder> responder;  // joins before the turns go
};

TEST_F(Answering, TheProberMeasuresSomethingPlausible) {
  const auto ticket = offer();
  const auto link = measure_link("b", "127.0.0.1", ticket, clock, {}, kLong, kLong);
  ASSERT_TRUE(link) << link.error().message;
  EXPECT_GT(link->fit.latency_seconds, 0);
  EXPECT_GT(link->fit.seconds_per_byte, 0);
  EXPECT_GE(link->trips.size(), 3U);
  EXPECT_LE(link->bytes, kMaxLinkBytes);
  EXPECT_EQ(link->flows.count, kFlows);
  EXPECT_GT(link->flows.bits_per_second, 0);
  EXPECT_GT(ended(), 1000s) << "a success";
  EXPECT_FALSE(measure_link("b", "127.0.0.1", ticket, clock, {}, kLong))
      << "a ticket is good once, and nobody listens now";
}

TEST_F(Answering, AFewFlowsAreServedBesideTheFirst) {
  const auto ticket = offer();
  const auto open = [&] {
    auto end = std::make_unique<End>("127.0.0.1", ticket.port);
    EXPECT_TRUE(end->send(ticket.bytes));
    return end;
  };
  const auto first = open();
  ASSERT_TRUE(first->receive(1));
  std::vector<std::unique_ptr<End>> flows;
  for (int i = 0; i < kFlows; ++i) {
    flows.push_back(open());
    ASSERT_TRUE(flows.back()->receive(1)) << i;
  }
  const auto surplus = open();
  ASSERT_TRUE(first->send(std::array<unsigned char, 5>{0, 0, 0, 1, 7}));
  ASSERT_TRUE(first->receive(1));
  first->fd = UniqueFd();
  EXPECT_GT(ended(), 1000s) << "flows that stall do not outlive the first connection";
  EXPECT_FALSE(surplus->receive(1));
  for (const auto& flow : flows) EXPECT_TRUE(flow->closed());
}

TEST_F(Answering, StrangersAreClosedAndDoNotKeepTheTicketsOwnerOut) {
  const auto ticket = offer();
  std::vector<std::unique_ptr<End>> silent;
  for (int i = 0; i < 5; ++i) silent.push_back(std::make_unique<End>("127.0.0.1", ticket.port));
  ASSERT_TRUE(silent[0]->send(std::vector<unsigned char>(31, 7)));
  End wrong("127.0.0.1", ticket.port);
  ASSERT_TRUE(wrong.send(std::vector<unsigned char>(64, 7)));
  EXPECT_TRUE(wrong.closed());
  const auto link = measure_link("b", "127.0.0.1", ticket, clock, {}, kLong);
  EXPECT_TRUE(link) << link.error().message;
  for (const auto& each : silent) EXPECT_TRUE(each->closed());
}

TEST_F(Answering, ManyStrangersEndTheTicket) {
  const auto ticket = offer();
  for (int i = 0; i < 64; ++i) {
    End wrong("127.0.0.1", ticket.port);
    ASSERT_TRUE(wrong.fd);
    ASSERT_TRUE(wrong.send(std::vector<unsigned char>(32, 7)));
    EXPECT_TRUE(wrong.closed());
  }
  EXPECT_LE(ended(), 1000s);
}

TEST_F(Answering, AnUnusedTicketExpires) {
  const auto ticket = offer(1ms);
  EXPECT_LE(ended(), 1000s);
  EXPECT_FALSE(measure_link("b", "127.0.0.1", ticket, clock, {}, kLong));
}

/// Sends the ticket and then does what the test says. The responder closes and counts a failure.
void hostile(const Ticket& ticket, const std::function<void(End&)>& deed) {
  End end("127.0.0.1", ticket.port);
  ASSERT_TRUE(end.fd);
  ASSERT_TRUE(end.send(ticket.bytes));
  ASSERT_TRUE(end.receive(1));
  deed(end);
}

TEST_F(Answering, OversizeAndEmptyMessagesAreRefused) {
  for (const auto& head :
       {std::array<unsigned char, 4>{0xff, 0xff, 0xff, 0xff}, {0, 0, 0, 0}, {0, 0x10, 0, 1}}) {
    hostile(offer(), [&](End& end) {
      end.send(head);
      EXPECT_TRUE(end.closed());
    });
    EXPECT_LE(ended(), 1000s);
  }
}

TEST_F(Answering, WhoLeavesOrStallsAnywhereIsDoneWith) {
  constexpr std::array<unsigned char, 4> kLarge{0, 0x10, 0, 0};
  hostile(offer(), [&](End&) {});
  EXPECT_LE(ended(), 1000s) << "before the first message";
  hostile(offer(), [&](End& end) { end.send(std::span(kLarge).first(2)); });
  EXPECT_LE(ended(), 1000s) << "in a length";
  hostile(offer(), [&](End& end) { end.send(kLarge); });
  EXPECT_LE(ended(), 1000s) << "in a message";
  // Sends all messages and reads no answer.
  hostile(offer(kLong, 300ms), [&](End& end) {
    std::vector<unsigned char> message(1 << 20);
    for (int i = 0; i < 40 && end.send(kLarge) && wait_for(end.fd->get(), POLLOUT, end.until());
         ++i) {
      if (::send(end.fd->get(), message.data(), message.size(), MSG_NOSIGNAL) <
          static_cast<ssize_t>(message.size()))
        break;
    }
    EXPECT_LE(ended(), 1000s) << "stalling";
  });
}

TEST_F(Answering, MoreThanTheBudgetIsNotAnswered) {
  constexpr std::array<unsigned char, 4> kLarge{0, 0x10, 0, 0};
  hostile(offer(), [&](End& end) {
    const std::vector<unsigned char> message(1 << 20);
    std::uint64_t bytes = 0;
    while (end.send(kLarge) && end.send(message) && end.receive(message.size()))
      bytes += 2 * message.size();
    EXPECT_LE(bytes, kMaxLinkBytes);
  });
  EXPECT_LE(ended(), 1000s);
}

/// A fake peer: accepts the prober's connection and does what the test says.
Result<Link> against(std::chrono::milliseconds limit, const std::function<void(End&)>& deed,
                     const std::stop_token& stop = {}) {
  const SystemClock clock;
  auto listener = listen_on("127.0.0.1", 0);
  EXPECT_TRUE(listener);
  const Ticket ticket{{}, port_of(listener->get())};
  const std::jthread peer([&] {
    EXPECT_TRUE(wait_for(listener->get(), POLLIN, {clock, clock.steady() + kLong, {}}));
    End end(UniqueFd(::accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)));
    deed(end);
  });
  return measure_link("b", "127.0.0.1", ticket, clock, stop, limit);
}

TEST(Probing, EndsWithWhateverThePeerDoes) {
  constexpr std::array<unsigned char, 1> kReady{1};
  const auto left = against(kLong, [](End&) {});
  EXPECT_EQ(left.error().code, Code::kUnavailable);
  const auto broken = against(kLong, [&](End& end) {
    end.receive(kTicketBytes);
    end.send(kReady);
    end.receive(kLengthBytes + 64);
    end.send(std::vector<unsigned char>(63));
  });
  EXPECT_EQ(broken.error().code, Code::kUnavailable);
  const auto silent = against(300ms, [](End& end) { EXPECT_TRUE(end.closed()); });
  EXPECT_EQ(silent.error().code, Code::kTimeout);
  // Sends without end and reads nothing.
  const auto flooded = against(300ms, [](End& end) {
    const std::vector<unsigned char> flood(65536);
    while (end.send(flood)) continue;
  });
  EXPECT_LE(flooded ? flooded->bytes : 0, kMaxLinkBytes);
}

TEST(Probing, StopsWhenTold) {
  std::stop_source stop;
  const auto stopped = against(
      kLong,
      [&](End& end) {
        end.receive(kTicketBytes);
        stop.request_stop();
        EXPECT_TRUE(end.closed());
      },
      stop.get_token());
  EXPECT_EQ(stopped.error().code, Code::kCancelled);
}

}  // namespace
}  // namespace paceline::agent
