// SPDX-License-Identifier: Apache-2.0
#include "launcher/spans/life.hpp"

#include <gtest/gtest.h>

#include "common/base/timestamp.hpp"
#include "tests/unit/launcher/rendezvous/gang_fixture.hpp"

namespace paceline::spans {
namespace {

using rendezvous::Failed;
using rendezvous::Heartbeat;
using rendezvous::Stopped;

struct LifeOfAJob : rendezvous::GangTest {
  WallTime at(int seconds) const { return begin + std::chrono::seconds(seconds); }

  void follow(int seconds) { take(life.follow(gang, at(seconds))); }
  void look(int seconds) { take(life.look_at_ranks(gang, at(seconds))); }
  void take(std::vector<Span> more) {
    for (Span& span : more) all.push_back(std::move(span));
  }
  void report(std::uint64_t steps, std::uint64_t checkpoints, double seconds) {
    telemetry::RankSummary rank;
    rank.use = {.attempt = gang.attempt(),
                .steps = steps,
                .checkpoint = seconds,
                .checkpoints = checkpoints};
    say(1, Heartbeat{{rank}});
  }
  /// "name from-to", with "!" after a failure.
  std::vector<std::string> told() const {
    std::vector<std::string> lines;
    for (const Span& span : all) {
      const auto since = [this](WallTime time) {
        return std::to_string(
            std::chrono::duration_cast<std::chrono::seconds>(time - begin).count());
      };
      lines.push_back(span.name + " " + since(span.begin) + "-" + since(span.end) +
                      (span.error.empty() ? "" : "!"));
    }
    return lines;
  }

  const WallTime begin = *parse_time("2026-01-01T00:00:00Z");
  JobLife life{{.name = "train", .uid = "uid", .created = at(0), .placed = at(10)}, at(15)};
  std::vector<Span> all;
};

TEST_F(LifeOfAJob, IsTold) {
  follow(15);
  gather();
  follow(20);
  look(21);
  report(3, 0, 0);
  look(24);
  report(9, 1, 2);
  look(30);
  say(1, Failed{0, killed(1)});
  settle(0);
  follow(40);
  say(1, Stopped{0});
  say(2, Stopped{0});
  follow(42);
  take(life.end("", true, at(50)));
  EXPECT_EQ(told(),
            (std::vector<std::string>{"queued 0-10", "pod start 10-15", "rendezvous 15-20",
                                      "first step 20-24", "checkpoint 28-30", "attempt 0 20-40!",
                                      "restart 40-42", "attempt 1 42-50", "job train 0-50"}));
  EXPECT_EQ(all[3].parent, attempt_span("uid", 0));
  EXPECT_EQ(all[4].parent, all[5].id);
  EXPECT_EQ(all[5].parent, all.back().id);
  EXPECT_NE(all[5].error.find("rank 1"), std::string::npos) << all[5].error;
  EXPECT_EQ(all.back().parent, "");
}

TEST_F(LifeOfAJob, AnotherPodGoesOnWithIt) {
  gather();
  follow(20);
  take(life.end("SIGTERM", false, at(30)));
  EXPECT_EQ(told(), (std::vector<std::string>{"queued 0-10", "pod start 10-15", "rendezvous 15-20",
                                              "attempt 0 20-30!"}));
  JobLife next({.name = "train", .uid = "uid", .created = at(0), .attempt = 1}, at(40));
  const auto rest = next.end("", true, at(60));
  ASSERT_EQ(rest.size(), 2U);
  EXPECT_EQ(rest[0].name, "rendezvous");
  EXPECT_EQ(rest[1].begin, at(0));
  EXPECT_EQ(rest[1].id, span_id("uid", "job"));
}

TEST_F(LifeOfAJob, ClocksThatDifferMakeNoNegativeSpans) {
  JobLife late({.name = "train", .uid = "uid", .created = at(100), .placed = at(200)}, at(50));
  take(late.follow(gang, at(40)));
  take(late.end("", true, at(30)));
  for (const Span& span : all) EXPECT_LE(span.begin, span.end) << span.name;
}

TEST(TraceId, IsTheUidOfTheJob) {
  EXPECT_EQ(trace_id("0f8fad5b-d9cb-469f-a165-70867728950e"), "0f8fad5bd9cb469fa16570867728950e");
  for (const char* uid : {"", "local", "00000000-0000-0000-0000-000000000000"}) {
    EXPECT_EQ(trace_id(uid).size(), 32U) << uid;
    EXPECT_NE(trace_id(uid), std::string(32, '0')) << uid;
  }
  EXPECT_NE(span_id("a", "job"), span_id("b", "job"));
  EXPECT_EQ(span_id("a", "job").size(), 16U);
}

}  // namespace
}  // namespace paceline::spans
