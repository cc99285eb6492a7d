// SPDX-License-Identifier: Apache-2.0
// Two agents that ask each other, without a network between them but for the measurement.
#include "common/base/log.hpp"

#include "agent/links/service.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/kube/fake/cluster.hpp"

namespace paceline::agent {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using testing::HasSubstr;

constexpr auto kPatience = 30s;
constexpr RateLimits kNotAgain{.after_success = 600s, .after_failure = 600s, .after_nothing = 600s};

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
    options.responder = {.address = "127.0.0.1", .ticket_life = kPatience, .patience = kPatience};
    options.time = kPatience;
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

}  // namespace
}  // namespace paceline::agent
