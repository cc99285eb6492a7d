// SPDX-License-Identifier: Apache-2.0
#include "launcher/trace/service.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <cstdint>
#include <fstream>

#include <nlohmann/json.hpp>

namespace paceline::traces {
namespace {

using nlohmann::json;

struct TraceServiceTest : ::testing::Test {
  TraceServiceTest() {
    std::string path = ::testing::TempDir() + "traces-XXXXXX";
    folder = std::filesystem::path(::mkdtemp(path.data())) / "trace";
    collector.begin_attempt(0, 0, 0, 2);
    service = *TraceService::open(folder, {"job", 0, "pod-0", "node-a", "boot"}, collector, clock);
  }
  ~TraceServiceTest() override { std::filesystem::remove_all(folder.parent_path()); }

  summary::HttpAnswer ask(const std::string& method, const std::string& path,
                          const json& body = {}) {
    return service->answer({method, path, "", body.is_null() ? "" : body.dump()});
  }
  summary::HttpAnswer begin(const std::string& id) {
    return ask("POST", "/v1/trace",
               {{"id", id}, {"by", "ann@desk"}, {"startStep", 120}, {"steps", 5}});
  }
  /// As a rank sees the request: sequence, first step, steps.
  std::array<std::uint64_t, 3> request() const {
    std::array<std::uint64_t, 3> words{};
    std::ifstream(folder / "request", std::ios::binary)
        .read(reinterpret_cast<char*>(words.data()), sizeof words);
    return words;
  }
  void put(const std::string& name, const std::string& text) const {
    std::ofstream(folder / name, std::ios::binary) << text;
  }
  json rank(std::size_t index) {
    return json::parse(ask("GET", "/v1/trace").body)["ranks"].at(index);
  }

  ManualClock clock;
  telemetry::Collector collector{{"ns", "job", "worker", "node-a"}, clock};
  std::filesystem::path folder;
  std::unique_ptr<TraceService> service;
};

using Words = std::array<std::uint64_t, 3>;

TEST_F(TraceServiceTest, ARankReadsTheRequestInItsFile) {
  EXPECT_EQ(request(), (Words{0, 0, 0}));
  ASSERT_EQ(begin("a").status, 200);
  EXPECT_EQ(request(), (Words{1, 120, 5}));
  ASSERT_EQ(ask("POST", "/v1/trace/end", {{"id", "a"}}).status, 200);
  EXPECT_EQ(request(), (Words{2, 0, 0})) << "ranks must hear of the end";
}

TEST_F(TraceServiceTest, ASecondTraceIsRefusedByTheNameOfTheFirst) {
  ASSERT_EQ(begin("a").status, 200);
  const auto second = begin("b");
  EXPECT_EQ(second.status, 409);
  EXPECT_NE(second.body.find("a trace of ann@desk is under way (5 steps from step 120)"),
            std::string::npos)
      << second.body;
  EXPECT_EQ(ask("POST", "/v1/trace/end", {{"id", "b"}}).status, 404) << "it is another's";
  EXPECT_EQ(request()[0], 1U);
}

TEST_F(TraceServiceTest, ARequestEndsWhenNobodyAsksForItAnyMore) {
  ASSERT_EQ(begin("a").status, 200);
  clock.advance(kLease - std::chrono::seconds(1));
  EXPECT_EQ(json::parse(ask("GET", "/v1/trace").body)["request"], "a") << "this renews it";
  clock.advance(kLease - std::chrono::seconds(1));
  EXPECT_EQ(begin("b").status, 409);
  clock.advance(std::chrono::seconds(1));
  EXPECT_EQ(begin("b").status, 200);
}

TEST_F(TraceServiceTest, RefusesRequestsByTheirFields) {
  for (const char* field : {"id", "by", "startStep", "steps"}) {
    json body{{"id", "a"}, {"by", "ann"}, {"startStep", 1}, {"steps", 5}};
    body.erase(field);
    const auto answer = ask("POST", "/v1/trace", body);
    EXPECT_EQ(answer.status, 400);
    EXPECT_NE(answer.body.find(field), std::string::npos) << answer.body;
  }
  EXPECT_EQ(ask("POST", "/v1/trace", {{"id", "a"}, {"by", "b"}, {"startStep", 1}, {"steps", 1001}})
                .status,
            400);
  EXPECT_EQ(ask("DELETE", "/v1/trace").status, 405);
  EXPECT_EQ(ask("GET", "/v1/records/0").status, 400);
  EXPECT_EQ(ask("GET", "/v1/trace/files/0").status, 400);
  EXPECT_EQ(ask("GET", "/v1/trace/files/0/-1").status, 400);
  EXPECT_EQ(request()[0], 0U);
}

TEST_F(TraceServiceTest, TellsWhatRanksSayOfThisRequestAlone) {
  ASSERT_EQ(begin("a").status, 200);
  put("rank-0.state", R"({"sequence":1,"state":"recording","reason":"","firstStep":120,)"
                      R"("profilerStepZero":119})");
  put("rank-1.state", R"({"sequence":7,"state":"done","reason":""})");
  EXPECT_EQ(rank(0)["state"], "recording");
  EXPECT_EQ(rank(0)["profilerStepZero"], 119);
  EXPECT_FALSE(rank(1).contains("state")) << "of another request";
  put("rank-1.state", R"({"sequence":1,"state":"fail)");
  EXPECT_FALSE(rank(1).contains("state")) << "torn";
}

TEST_F(TraceServiceTest, ServesAFileInPieces) {
  ASSERT_EQ(begin("a").status, 200);
  const std::string packed(700'000, 'x');
  put("rank-1.json.gz", packed);
  put("rank-1.state", R"({"sequence":1,"state":"done","reason":""})");
  EXPECT_EQ(rank(1)["bytes"], packed.size());
  const auto first = ask("GET", "/v1/trace/files/1/0");
  ASSERT_EQ(first.status, 200);
  const auto second = ask("GET", "/v1/trace/files/1/" + std::to_string(first.body.size()));
  EXPECT_EQ(first.body + second.body, packed);
  EXPECT_EQ(ask("GET", "/v1/trace/files/1/" + std::to_string(packed.size())).body, "");
  EXPECT_EQ(ask("GET", "/v1/trace/files/0/0").status, 404);
  ASSERT_EQ(ask("POST", "/v1/trace/end", {{"id", "a"}}).status, 200);
  EXPECT_EQ(ask("GET", "/v1/trace/files/1/0").status, 404) << "removed at the end";
}

TEST_F(TraceServiceTest, RemovesTheFilesOfItsRanksAlone) {
  ASSERT_EQ(begin("a").status, 200);
  std::filesystem::create_directories(folder / "tree" / "deep");
  std::filesystem::create_directories(folder / "rank-1.state" / "deep");
  put("rank-0.json.gz.part", "x");
  put("rank-7.state", "of another pod");
  ASSERT_EQ(ask("POST", "/v1/trace/end", {{"id", "a"}}).status, 200);
  EXPECT_FALSE(std::filesystem::exists(folder / "rank-0.json.gz.part"));
  for (const char* kept : {"tree/deep", "rank-1.state/deep", "rank-7.state", "request"})
    EXPECT_TRUE(std::filesystem::exists(folder / kept)) << kept;
}

// The files come from the user's process.
TEST_F(TraceServiceTest, FollowsNoLinkOfARank) {
  ASSERT_EQ(begin("a").status, 200);
  std::filesystem::create_symlink("/etc/passwd", folder / "rank-0.json.gz");
  put("rank-0.state", R"({"sequence":1,"state":"done","reason":""})");
  EXPECT_EQ(rank(0)["state"], "failed");
  EXPECT_EQ(ask("GET", "/v1/trace/files/0/0").status, 404);
}

}  // namespace
}  // namespace paceline::traces
