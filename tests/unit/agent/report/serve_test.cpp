// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "agent/serve/access.hpp"
#include "agent/serve/documents.hpp"
#include "agent/serve/handler.hpp"
#include "common/base/clock.hpp"

namespace paceline::agent {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

/// An API server that knows some tokens, and which accounts may read NodeFabrics.
class Reviewer final : public kube::Api {
 public:
  Result<std::string> create(const kube::Resource& resource, const std::string& /*ns*/,
                             const std::string& body, const kube::WriteOptions& /*options*/,
                             const std::stop_token& /*stop*/) override {
    ++questions;
    if (down) return fail(Code::kUnavailable, Origin::kKube, "down", true);
    const json spec = json::parse(body)["spec"];
    json status = json::object();
    if (resource.plural == "tokenreviews") {
      const auto user = users.find(spec["token"]);
      status["authenticated"] = user != users.end();
      if (user != users.end()) {
        status["user"] = {
            {"username", user->second}, {"groups", {"g"}}, {"uid", "u"}, {"extra", extra}};
        status["audiences"] = audiences.value_or(spec["audiences"]);
      }
    } else {
      asked = spec;
      status["allowed"] = spec["user"] == "reader";
    }
    return json{{"status", status}}.dump();
  }
  Result<std::string> get(const kube::Resource&, const std::string&, const std::string&,
                          const std::stop_token&) override {
    return none();
  }
  Result<std::string> list(const kube::Resource&, const std::string&, const kube::ListOptions&,
                           const std::stop_token&) override {
    return none();
  }
  Result<std::string> update(const kube::Resource&, const std::string&, const std::string&,
                             const std::string&, const kube::WriteOptions&,
                             const std::stop_token&) override {
    return none();
  }
  Result<std::string> patch(const kube::Resource&, const std::string&, const std::string&,
                            const std::string&, const kube::PatchOptions&,
                            const std::stop_token&) override {
    return none();
  }
  Result<std::string> remove(const kube::Resource&, const std::string&, const std::string&,
                             const kube::DeleteOptions&, const std::stop_token&) override {
    return none();
  }
  Status watch(const kube::Resource&, const std::string&, const kube::WatchOptions&,
               const kube::WatchHandler&, const std::stop_token&) override {
    return std::unexpected(none().error());
  }
  Result<std::string> get_raw(const std::string&, const std::stop_token&) override {
    return none();
  }

  std::map<std::string, std::string> users{{"good", "reader"}, {"other", "stranger"}};
  std::optional<json> audiences;
  json extra = json::object();
  json asked;
  bool down = false;
  int questions = 0;

 private:
  static Result<std::string> none() {
    return fail(Code::kInternal, Origin::kKube, "not asked for here");
  }
};

class Written final : public http::ResponseWriter {
 public:
  void respond(http::Response answer) override { response = std::move(answer); }
  bool begin_stream(int, const std::vector<http::Header>&) override { return false; }
  bool write(std::string_view) override { return false; }
  void abort() override {}
  std::stop_token stop() const override { return {}; }
  http::Response response;
};

class Serve : public testing::Test {
 protected:
  Serve() { documents.put(clock.wall(), Hardware{}, {}); }

  http::Response get(const std::string& target, const std::string& authorization,
                     const std::string& method = "GET") {
    http::Request request;
    request.method = method;
    request.target = target;
    if (!authorization.empty()) request.headers.push_back({"authorization", authorization});
    Written writer;
    serve_documents(documents, access)(request, writer);
    return writer.response;
  }

  ManualClock clock;
  Reviewer api;
  Documents documents{"node-1"};
  AccessReview access{
      api, clock, {.node_name = "node-1", .max_kept = 2, .max_questions_per_second = 5}};
};

TEST_F(Serve, ReadersGetTheDocuments) {
  const auto fabric = get("/v1/fabric", "Bearer good");
  ASSERT_EQ(fabric.status, 200) << fabric.body;
  const json view = json::parse(fabric.body);
  EXPECT_EQ(view["node"], "node-1");
  EXPECT_EQ(view["observedTime"], "2026-01-01T00:00:00Z");
  EXPECT_TRUE(view["gpus"].is_array());
  EXPECT_EQ(json::parse(get("/v1/checks", "Bearer good").body)["version"], 1);
  EXPECT_EQ(api.asked["resourceAttributes"], json({{"group", "paceline.dev"},
                                                   {"resource", "nodefabrics"},
                                                   {"verb", "get"},
                                                   {"name", "node-1"}}));
  EXPECT_EQ(api.asked["groups"], json({"g"}))
      << "authorization is told all that authentication found";
  EXPECT_EQ(get("/v1/other", "Bearer good").status, 404);
  EXPECT_EQ(get("/v1/fabric", "Bearer good", "POST").status, 405);
}

TEST_F(Serve, StrangersGetNothing) {
  EXPECT_EQ(get("/v1/fabric", "").status, 401);
  EXPECT_EQ(get("/v1/fabric", "Basic good").status, 401);
  EXPECT_EQ(get("/v1/fabric", "Bearer ").status, 401);
  EXPECT_EQ(get("/v1/fabric", "Bearer go\"od\xff").status, 401);
  EXPECT_EQ(api.questions, 0) << "what cannot be a token is not asked about";
  EXPECT_EQ(get("/v1/fabric", "Bearer unknown").status, 401);
  EXPECT_EQ(get("/v1/fabric", "Bearer unknown").header("www-authenticate"), "Bearer");
  EXPECT_EQ(get("/v1/fabric", "Bearer other").status, 403);
  EXPECT_EQ(get("/v1/other", "Bearer other").status, 403) << "not even what there is";
}

TEST_F(Serve, MeasuringIsARightOfItsOwn) {
  const auto off = get("/v1/links", "Bearer good", "POST");
  EXPECT_EQ(off.status, 404) << "admitted, and switched off here";
  EXPECT_EQ(api.asked["resourceAttributes"], json({{"group", "paceline.dev"},
                                                   {"resource", "nodefabrics"},
                                                   {"subresource", "links"},
                                                   {"verb", "create"},
                                                   {"name", "node-1"}}));
  const int asked = api.questions;
  EXPECT_EQ(get("/v1/fabric", "Bearer good").status, 200);
  EXPECT_GT(api.questions, asked) << "the one right does not stand for the other";
  EXPECT_EQ(get("/v1/links/tickets", "Bearer good").status, 405);
  EXPECT_EQ(get("/v1/links/tickets", "", "POST").status, 401);
  clock.advance(2s);
  EXPECT_EQ(get("/v1/links/tickets", "Bearer other", "POST").status, 403);
}

TEST_F(Serve, AVisitorIsItsNodeWhereTheTokenIsAPods) {
  EXPECT_EQ(access.review("good")->name, "reader");
  api.extra = {{"authentication.kubernetes.io/node-name", {"node-2"}}};
  EXPECT_EQ(access.review("good", Wish::kMeasure)->name, "node node-2");
}

TEST_F(Serve, TokenOfAnotherAudienceIsNobodys) {
  api.audiences = json({"somebody-else"});
  EXPECT_EQ(get("/v1/fabric", "Bearer good").status, 401);
  api.audiences = json(nullptr);
  api.users["again"] = "reader";
  EXPECT_EQ(get("/v1/fabric", "Bearer again").status, 401) << "a server that knows no audiences";
}

TEST_F(Serve, AnswersAreKeptForAWhile) {
  EXPECT_EQ(get("/v1/fabric", "Bearer good").status, 200);
  const int first = api.questions;
  api.users.clear();
  clock.advance(59s);
  EXPECT_EQ(get("/v1/fabric", "Bearer good").status, 200);
  EXPECT_EQ(api.questions, first);
  clock.advance(2s);
  EXPECT_EQ(get("/v1/fabric", "Bearer good").status, 401)
      << "a revoked token serves a minute at most";
  api.users["good"] = "reader";
  clock.advance(11s);
  EXPECT_EQ(get("/v1/fabric", "Bearer good").status, 200);
}

TEST_F(Serve, AFloodOfTokensDoesNotReachTheApiServer) {
  for (int i = 0; i < 50; ++i) get("/v1/fabric", "Bearer t" + std::to_string(i));
  EXPECT_EQ(api.questions, 5);
  const auto refused = get("/v1/fabric", "Bearer good");
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.header("Retry-After"), "1");
  clock.advance(1s);
  EXPECT_EQ(get("/v1/fabric", "Bearer good").status, 200);
}

TEST_F(Serve, WithoutAnApiServerNobodyNewIsLetIn) {
  EXPECT_EQ(get("/v1/fabric", "Bearer good").status, 200);
  api.down = true;
  EXPECT_EQ(get("/v1/fabric", "Bearer good").status, 200) << "known";
  EXPECT_EQ(get("/v1/fabric", "Bearer other").status, 503);
  api.down = false;
  EXPECT_EQ(get("/v1/fabric", "Bearer other").status, 403) << "a failure is not remembered";
}

TEST(ServeEarly, BeforeTheFirstProbeItSaysSo) {
  ManualClock clock;
  Reviewer api;
  const Documents documents("node-1");
  AccessReview access(api, clock, {.node_name = "node-1"});
  http::Request request;
  request.target = "/v1/checks";
  request.headers.push_back({"Authorization", "Bearer good"});
  Written writer;
  serve_documents(documents, access)(request, writer);
  EXPECT_EQ(writer.response.status, 503);
}

}  // namespace
}  // namespace paceline::agent
