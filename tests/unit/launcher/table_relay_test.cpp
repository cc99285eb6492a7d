// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/table_relay.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include <boost/asio/io_context.hpp>

namespace paceline::rendezvous {
namespace {

struct TableRelayTest : ::testing::Test {
  TableRelayTest() { address.port = parent.open(address.host); }
  ~TableRelayTest() override { parent.close(); }

  /// Fetches with a relay of its own, and runs until it reports.
  Result<std::string> fetch(TableRelay& child, int attempt) {
    std::optional<Result<std::string>> answer;
    child.fetch(attempt, address,
                [&](const Result<std::string>& payload) { answer.emplace(payload); });
    run_until([&] { return answer.has_value(); });
    return answer.value_or(fail(Code::kUnavailable, Origin::kProtocol, "no report"));
  }

  void run_until(const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!condition() && std::chrono::steady_clock::now() < end)
      io.run_one_for(std::chrono::milliseconds(100));
  }

  boost::asio::io_context io{1};
  net::Address address{"127.0.0.1", 0};
  TableRelay parent{io, "secret", "uid"};
};

TEST_F(TableRelayTest, HandsTheTableOn) {
  ASSERT_NE(address.port, 0);
  parent.offer(4, "the table");
  TableRelay child(io, "secret", "uid");
  EXPECT_EQ(fetch(child, 4).value(), "the table");
}

TEST_F(TableRelayTest, AChildThatAsksEarlyWaitsForTheTable) {
  TableRelay child(io, "secret", "uid");
  std::optional<std::string> got;
  child.fetch(5, address, [&](const Result<std::string>& payload) { got = payload.value(); });
  parent.offer(4, "of the attempt before");
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
  while (std::chrono::steady_clock::now() < end) io.run_one_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(got.has_value());
  parent.offer(5, "the table");
  run_until([&] { return got.has_value(); });
  EXPECT_EQ(got.value_or(""), "the table");
}

TEST_F(TableRelayTest, AChildWaitsAsLongAsItsParentTellsThatItWaitsToo) {
  constexpr std::chrono::milliseconds kLimit{400};
  TableRelay child(io, "secret", "uid", kLimit);
  std::optional<Result<std::string>> answer;
  SteadyTime now{std::chrono::hours(1)};
  // Both have one thread: if it pauses, the parent is silent. Begin again then.
  std::chrono::nanoseconds widest = kLimit;
  for (int i = 0; i < 20 && widest >= kLimit / 2; ++i) {
    answer.reset();
    widest = {};
    auto last = std::chrono::steady_clock::now();
    const auto end = last + 3 * kLimit;
    child.fetch(5, address, [&](const Result<std::string>& payload) { answer.emplace(payload); });
    while (last < end && widest < kLimit / 2) {
      parent.tick(now += std::chrono::seconds(2));
      io.run_for(std::chrono::milliseconds(20));
      io.poll();  // what came while it paused
      const auto then = std::exchange(last, std::chrono::steady_clock::now());
      widest = std::max<std::chrono::nanoseconds>(widest, last - then);
    }
  }
  ASSERT_LT(widest, kLimit / 2) << "this machine pauses too often";
  EXPECT_FALSE(answer.has_value());
  run_until([&] { return answer.has_value(); });
  ASSERT_TRUE(answer.has_value()) << "it gives up on a parent that has fallen silent";
  EXPECT_FALSE(answer->has_value());
}

TEST_F(TableRelayTest, StrangersAndLateChildrenGetNothing) {
  parent.offer(4, "the table");
  TableRelay stranger(io, "guess", "uid");
  EXPECT_FALSE(fetch(stranger, 4).has_value());
  TableRelay other_job(io, "secret", "other");
  EXPECT_FALSE(fetch(other_job, 4).has_value());
  TableRelay late(io, "secret", "uid");
  EXPECT_FALSE(fetch(late, 3).has_value());
}

TEST_F(TableRelayTest, AParentThatIsGoneIsReported) {
  parent.close();
  TableRelay child(io, "secret", "uid");
  EXPECT_FALSE(fetch(child, 4).has_value());
}

TEST_F(TableRelayTest, ASecondFetchReplacesTheFirst) {
  TableRelay child(io, "secret", "uid");
  bool reported = false;
  child.fetch(4, address, [&](const Result<std::string>&) { reported = true; });
  parent.offer(5, "the table");
  EXPECT_EQ(fetch(child, 5).value(), "the table");
  EXPECT_FALSE(reported);
}

TEST_F(TableRelayTest, AnAddressOfAnotherMachineCannotBeOpened) {
  TableRelay other(io, "secret", "uid");
  EXPECT_EQ(other.open("192.0.2.1"), 0);
  EXPECT_EQ(other.open("nonsense"), 0);
}

}  // namespace
}  // namespace paceline::rendezvous
