// SPDX-License-Identifier: Apache-2.0
// Measurements between two agents in one process, over real sockets on loopback, and hostile peers
// on either end. Values only have to be plausible, because the machine may do other work.
#include "common/base/log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "agent/links/prober.hpp"
#include "agent/links/service.hpp"
#include "agent/report/node_fabric.hpp"
#include "agent/report/publisher.hpp"
#include "common/kube/fake/cluster.hpp"

namespace paceline::agent {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using testing::HasSubstr;

constexpr auto kLong = 30s;
constexpr RateLimits kNotAgain{.after_success = 600s, .after_failure = 600s, .after_nothing = 600s};

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
  const auto link = measure_link("b", "127.0.0.1", ticket, clock, {}, kLong);
  ASSERT_TRUE(link) << link.error().message;
  EXPECT_GT(link->fit.latency_seconds, 0);
  EXPECT_GT(link->fit.seconds_per_byte, 0);
  EXPECT_GE(link->trips.size(), 3U);
  EXPECT_LE(link->bytes, kMaxLinkBytes);
  EXPECT_GT(ended(), 1000s) << "a success";
  EXPECT_FALSE(measure_link("b", "127.0.0.1", ticket, clock, {}, kLong))
      << "a ticket is good once, and nobody listens now";
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

/// A transport to a handler in this process.
class Direct final : public http::HttpTransport {
 public:
  explicit Direct(std::function<Result<http::Response>(const http::Request&)> handler)
      : handler_(std::move(handler)) {}
  Result<http::Response> send(const http::Request& request,
                              const std::stop_token& /*stop*/) override {
    return handler_(request);
  }
  Result<http::Response> stream(const http::Request&, const http::ChunkHandler&,
                                const std::stop_token&) override {
    return fail(Code::kInternal, Origin::kHttp, "not used here");
  }

 private:
  std::function<Result<http::Response>(const http::Request&)> handler_;
};

class Service : public testing::Test {
 protected:
  Service() : api(kube::make_fake_api(cluster)) {
    token_file = testing::TempDir() + "links-token-" + std::to_string(::getpid());
    std::ofstream(token_file) << "secret\n";
    a.emplace(
        *api, clock, book_a, [this](const http::Endpoint& endpoint) { return reach(endpoint); },
        options("a"), kNotAgain);
    b.emplace(*api, clock, book_b, nullptr, options("b"), kNotAgain);
  }
  ~Service() override { std::filesystem::remove(token_file); }

  LinkServiceOptions options(const std::string& node) const {
    LinkServiceOptions options;
    options.node_name = node;
    options.token_file = token_file;
    options.ca_file = "ca";
    options.server_name = "agents";
    options.responder = {.address = "127.0.0.1", .ticket_life = kLong, .patience = kLong};
    options.time = kLong;
    return options;
  }
  std::shared_ptr<http::HttpTransport> reach(const http::Endpoint& endpoint) {
    reached = endpoint;
    return std::make_shared<Direct>([this](const http::Request& request) -> Result<http::Response> {
      EXPECT_EQ(request.header("Authorization"), "Bearer secret");
      EXPECT_EQ(request.target, "/v1/links/tickets");
      return answer ? answer(request) : b->ticket("node a");
    });
  }
  void publish(const json& status) {
    const json fabric{{"apiVersion", "paceline.dev/v1alpha1"},
                      {"kind", "NodeFabric"},
                      {"metadata", {{"name", "b"}}}};
    ASSERT_TRUE(api->create(kube::kNodeFabrics, "", fabric.dump()));
    ASSERT_TRUE(cluster.poke(kube::kNodeFabrics, "", "b", json{{"status", status}}.dump()));
  }
  http::Response measure(const std::string& body = R"({"peer":"b"})") {
    return a->measure(body, {});
  }
  static std::string why(const http::Response& response) {
    return json::parse(response.body)["error"];
  }

  SystemClock clock;
  kube::FakeCluster cluster{clock};
  std::shared_ptr<kube::Api> api;
  std::string token_file;
  LinkStore book_a;
  LinkStore book_b;
  http::Endpoint reached;
  std::function<Result<http::Response>(const http::Request&)> answer;
  std::optional<LinkService> a;
  std::optional<LinkService> b;
};

TEST_F(Service, TwoAgentsMeasureAndTheAnswerIsKept) {
  publish({{"agentAddress", "127.0.0.1:9465"}});
  const auto response = measure();
  ASSERT_EQ(response.status, 200) << response.body;
  const json view = json::parse(response.body);
  EXPECT_EQ(view["node"], "a");
  EXPECT_EQ(view["peer"], "b");
  EXPECT_GT(view["latencySeconds"], 0);
  EXPECT_GT(view["bandwidthMbps"], 0);
  EXPECT_GE(view["roundTrips"].size(), 3U);
  EXPECT_EQ(reached.host, "127.0.0.1");
  EXPECT_EQ(reached.port, "9465");
  EXPECT_TRUE(reached.tls);
  EXPECT_EQ(reached.ca_file, "ca");
  EXPECT_EQ(reached.server_name, "agents");
  ASSERT_EQ(book_a.latest(clock.wall()).size(), 1U);

  const auto again = measure();
  EXPECT_EQ(again.status, 429);
  EXPECT_NE(again.header("Retry-After"), "");
  EXPECT_THAT(why(again), HasSubstr("come again in"));
  EXPECT_EQ(b->ticket("node a").status, 429) << "the peer counts for itself";
}

TEST_F(Service, WhatIsWrongIsSaid) {
  for (const char* body :
       {"", "[]", "{}", R"({"peer":7})", R"({"peer":"../b"})", R"({"peer":"a"})"})
    EXPECT_EQ(measure(body).status, 400) << body;
  EXPECT_EQ(measure().status, 404);
  EXPECT_EQ(measure().status, 429) << "even what never began is not asked at once again";
  EXPECT_EQ(book_a.changes(), 0U);
}

TEST_F(Service, APeerWithoutAnAddressCannotBeMeasured) {
  publish({{"agentAddress", "somewhere/else"}});
  const auto response = measure();
  EXPECT_EQ(response.status, 409);
  EXPECT_THAT(why(response), HasSubstr("agent.links.enabled"));
}

TEST_F(Service, APeerThatRefusesSaysWhen) {
  publish({{"agentAddress", "127.0.0.1:9465"}});
  answer = [](const http::Request&) {
    return http::Response{429, {{"Retry-After", "77"}}, R"({"error":"busy\u001b[2J"})"};
  };
  const auto response = measure();
  EXPECT_EQ(response.status, 429);
  EXPECT_EQ(response.header("Retry-After"), "77");
  EXPECT_THAT(why(response), HasSubstr("busy?[2J")) << "no control characters of others";
}

TEST_F(Service, APeerThatTalksNonsenseIsNotFollowed) {
  publish({{"agentAddress", "127.0.0.1:9465"}});
  const RateLimits none{.after_success = 0s, .after_failure = 0s, .after_nothing = 0s};
  a.emplace(
      *api, clock, book_a, [this](const http::Endpoint& endpoint) { return reach(endpoint); },
      options("a"), none);
  const std::string ticket = ticket_text({});
  for (const std::string& body :
       {std::string("<html>"), std::string("{}"), R"({"ticket":")" + ticket + R"(","port":0})",
        R"({"ticket":")" + ticket + R"(","port":65536})",
        R"({"ticket":")" + ticket + R"(","port":-1})",
        R"({"ticket":"+1)" + ticket.substr(2) + R"(","port":9})",
        std::string(R"({"ticket":"short","port":9})")}) {
    answer = [&](const http::Request&) { return http::Response{200, {}, body}; };
    EXPECT_EQ(measure().status, 502) << body;
    EXPECT_THAT(why(measure()), HasSubstr("gave no ticket")) << body;
  }
  answer = [](const http::Request&) {
    return fail(Code::kUnavailable, Origin::kHttp, "no TLS there");
  };
  EXPECT_THAT(why(measure()), HasSubstr("no TLS there"));
  EXPECT_EQ(book_a.changes(), 0U);
}

TEST_F(Service, WithoutATokenNobodyIsAsked) {
  std::ofstream(token_file, std::ios::trunc) << "";
  publish({{"agentAddress", "127.0.0.1:9465"}});
  EXPECT_THAT(why(measure()), HasSubstr("there is no token in"));
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
