// SPDX-License-Identifier: Apache-2.0
// What is measured, how it is kept and published, and how often it may be asked for.
#include "common/base/log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "agent/links/link_store.hpp"
#include "agent/links/rate_limiter.hpp"
#include "agent/report/node_fabric.hpp"
#include "agent/report/publisher.hpp"
#include "common/kube/fake/cluster.hpp"

namespace paceline::agent {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using testing::HasSubstr;

RoundTrip trip(std::uint64_t bytes, double seconds) { return {bytes, seconds}; }

TEST(LinkFit, FindsWhatTheTripsWereMadeOf) {
  std::vector<RoundTrip> trips;
  for (const double bytes : {64., 1024., 65536., 1048576.})
    trips.push_back(trip(static_cast<std::uint64_t>(bytes), 2 * (50e-6 + bytes * 1e-9)));
  const auto fit = fit_link(trips);
  ASSERT_TRUE(fit);
  EXPECT_NEAR(fit->latency_seconds, 50e-6, 1e-9);
  EXPECT_NEAR(fit->seconds_per_byte, 1e-9, 1e-13);
  trips.resize(2);
  EXPECT_FALSE(fit_link(trips));
}

TEST(LinkFit, NoiseGivesNothingBelowZero) {
  for (const auto& trips : {std::vector{trip(64, 1e-3), trip(1024, 1e-4), trip(65536, 1e-5)},
                            {trip(64, 1e-6), trip(1024, 1e-3), trip(1048576, 10)},
                            {trip(64, 0), trip(1024, 0), trip(4096, 0)},
                            {trip(64, 1), trip(64, 1), trip(64, 1)}}) {
    const auto fit = fit_link(trips);
    ASSERT_TRUE(fit);
    EXPECT_GT(fit->latency_seconds, 0);
    EXPECT_GT(fit->seconds_per_byte, 0);
  }
}

Link link_to(std::string peer, WallTime measured = {}) {
  return {.peer = std::move(peer),
          .fit = {123.4e-6, 8 / 9.876e9},
          .trips = {},
          .bytes = 0,
          .measured = measured};
}

TEST(LinkStatus, IsRoundedAndReadBack) {
  const json entry = link_status(link_to("b"));
  EXPECT_EQ(entry["latencyMicroseconds"], 120);
  EXPECT_EQ(entry["bandwidthMbps"], 9900);
  const auto again = read_link_status(entry);
  ASSERT_TRUE(again);
  EXPECT_EQ(link_status(*again), entry) << "no drift over restarts";
  for (const auto& [field, value] :
       std::vector<std::pair<std::string, json>>{{"peer", "B!"},
                                                 {"latencyMicroseconds", -1},
                                                 {"bandwidthMbps", "fast"},
                                                 {"measuredTime", "now"}}) {
    json wrong = entry;
    wrong[field] = value;
    EXPECT_FALSE(read_link_status(wrong)) << field;
  }
  EXPECT_FALSE(read_link_status(7));
}

TEST(LinkStore, KeepsTheLatest32PeersForAWeek) {
  LinkStore book;
  const WallTime start{std::chrono::hours(1000)};
  for (int i = 0; i < 40; ++i) book.put(link_to("n" + std::to_string(i), start + i * 1s));
  book.put(link_to("n20", start + 100s));
  const auto links = book.latest(start + 100s);
  ASSERT_EQ(links.size(), 32U);
  EXPECT_EQ(links[0].peer, "n20");
  EXPECT_EQ(links[1].peer, "n39");
  EXPECT_EQ(book.latest(start + 7 * 24h + 50s).size(), 1U);
  EXPECT_EQ(book.changes(), 41U);

  LinkStore next;
  next.put(link_to("n20", start + 200s));
  next.restore(json::array({link_status(links[0]), link_status(links[1]), 7}));
  next.restore("nonsense");
  ASSERT_EQ(next.latest(start + 200s).size(), 2U);
  EXPECT_EQ(next.latest(start + 200s)[0].measured, start + 200s) << "newer than what was published";
}

TEST(LinkStatus, NeverTakesTheNodeFabricOverItsBound) {
  std::vector<Link> links;
  for (int i = 0; i < 32; ++i) links.push_back(link_to(std::to_string(i) + std::string(240, 'x')));
  Hardware hardware;
  for (int i = 0; i < 64; ++i)
    hardware.nics.push_back({"eth" + std::to_string(i), "driver", 1000, 1500, 0, "", true});
  json status = fabric_status(hardware, "0.1.0");
  const std::size_t nics = status["nics"].size();
  add_links(status, links);
  stamp_times(status, nullptr, WallTime{});
  EXPECT_LE(status.dump().size(), kMaxFabricBytes);
  EXPECT_EQ(status["nics"].size(), nics);
  ASSERT_GT(status["links"].size(), 0U);
  EXPECT_EQ(status["links"][0]["peer"], links[0].peer) << "the newest stay";
}

TEST(RateLimiter, OneAtATimeAndEachPeerAfterAWhile) {
  ManualClock clock;
  RateLimiter limiter(clock, {.most_peers = 3});
  {
    const auto permit = limiter.begin("a");
    ASSERT_TRUE(permit);
    (*permit)->ends_as(PermitEnd::kSuccess);
    const auto other = limiter.begin("b");
    ASSERT_FALSE(other);
    EXPECT_THAT(other.error().why, HasSubstr("another measurement is under way"));
  }
  clock.advance(599500ms);
  ASSERT_FALSE(limiter.begin("a"));
  EXPECT_EQ(limiter.begin("a").error().in, 1s);
  EXPECT_THAT(limiter.begin("a").error().why, HasSubstr("come again in 1 s"));
  ASSERT_TRUE(limiter.begin("b")) << "ended as a failure";
  clock.advance(500ms);
  ASSERT_TRUE(limiter.begin("a"));
  EXPECT_EQ(limiter.begin("b").error().in, 60s);
  ASSERT_TRUE(limiter.begin("c"));
  EXPECT_THAT(limiter.begin("d").error().why, HasSubstr("too many peers"));
  clock.advance(60s);
  EXPECT_TRUE(limiter.begin("d"));
}

TEST(LinkPublishing, MeasuredLinksAreInTheNodeFabricAndComeBackAfterARestart) {
  ManualClock clock;
  kube::FakeCluster cluster(clock);
  const auto api = kube::make_fake_api(cluster);
  ASSERT_TRUE(api->create(kube::kNodes, "",
                          R"({"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"}})"));
  PublisherOptions options;
  options.node_name = "n1";
  LinkStore book;
  options.links = &book;
  book.reached_at("10.0.0.1:9465");
  book.put(link_to("b", clock.wall()));
  Publisher publisher(*api, clock, options);
  const Hardware hardware;
  ASSERT_TRUE(publisher.publish(hardware).value());
  const json status = json::parse(api->get(kube::kNodeFabrics, "", "n1").value())["status"];
  EXPECT_EQ(status["agentAddress"], "10.0.0.1:9465");
  ASSERT_EQ(status["links"].size(), 1U);
  EXPECT_EQ(status["links"][0]["peer"], "b");
  EXPECT_FALSE(publisher.publish(hardware).value()) << "nothing new";

  LinkStore next;
  next.reached_at("10.0.0.1:9465");
  options.links = &next;
  Publisher restarted(*api, clock, options);
  EXPECT_FALSE(restarted.publish(hardware).value());
  EXPECT_EQ(next.latest(clock.wall()).size(), 1U);
  clock.advance(8 * 24h);
  EXPECT_TRUE(restarted.publish(hardware).value()) << "forgotten after a week";
}

}  // namespace
}  // namespace paceline::agent
