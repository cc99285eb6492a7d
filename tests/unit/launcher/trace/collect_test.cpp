// SPDX-License-Identifier: Apache-2.0
// The collector against two launchers' answers over HTTP, with ranks that the test plays.
#include "launcher/trace/collect.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <memory>
#include <thread>

#include <boost/asio/io_context.hpp>

#include "common/base/base64.hpp"
#include "common/net/ports.hpp"
#include "launcher/summary/http_server.hpp"
#include "launcher/trace/peer.hpp"
#include "launcher/trace/service.hpp"
#include "testing/ring_fixture.hpp"

namespace paceline::traces {
namespace {

using nlohmann::json;
using std::chrono::nanoseconds;
using testing::HasSubstr;

/// The clock of another machine.
class ShiftedClock final : public Clock {
 public:
  explicit ShiftedClock(nanoseconds ahead) : ahead_(ahead) {}
  SteadyTime steady() const override { return std::chrono::steady_clock::now(); }
  WallTime wall() const override {
    return std::chrono::system_clock::now() +
           std::chrono::duration_cast<WallTime::duration>(ahead_);
  }

 private:
  nanoseconds ahead_;
};

/// One launcher with one rank, which is in this step.
class Replica {
 public:
  Replica(int rank, std::uint64_t step, nanoseconds ahead, const std::string& boot)
      : rank_(rank), clock_(ahead), port_("127.0.0.1") {
    std::string path = ::testing::TempDir() + "collect-XXXXXX";
    folder_ = std::filesystem::path(::mkdtemp(path.data())) / "trace";
    collector_.begin_attempt(0, rank, rank, 1);
    ring_.header().live.step = step;
    ring_.header().live.phase = PACELINE_PHASE_BACKWARD;
    for (std::uint64_t number = 1; number < step + 8; ++number) {
      auto record = telemetry::test::step(number);
      record.start_ns = number * 1'000'000'000;
      ring_.publish(record);
    }
    key_ = collector_.add(telemetry::test::ring_offer(rank), ring_.fd()).value_or(0);
    const std::string node = "node-" + std::to_string(rank);
    service_ = *TraceService::open(folder_, {"job", rank, "pod", node, boot}, collector_, clock_);
    server_.emplace(
        io_,
        [this](const summary::HttpRequest& request) {
          const std::lock_guard lock(mutex_);
          return request.authorization == "Bearer secret" ? service_->answer(request)
                                                          : summary::HttpAnswer{401};
        },
        summary::HttpLimits{.body = kMostRequestBytes});
    EXPECT_TRUE(server_->open("127.0.0.1", port_.port()));
    thread_ = std::jthread([this] { io_.run(); });
  }
  ~Replica() {
    io_.stop();
    thread_.join();
    std::filesystem::remove_all(folder_.parent_path());
  }

  net::Address address() const { return {"127.0.0.1", port_.port()}; }
  void put(const std::string& ending, const std::string& text) const {
    std::ofstream(folder_ / ("rank-" + std::to_string(rank_) + ending), std::ios::binary) << text;
  }
  summary::HttpAnswer ask(const std::string& path) {
    const std::lock_guard lock(mutex_);
    return service_->answer({"GET", path, "", ""});
  }
  void end_and_begin(std::uint32_t attempt) {
    collector_.remove(key_);
    collector_.begin_attempt(attempt, rank_, rank_, 1);
  }

 private:
  const int rank_;
  ShiftedClock clock_;
  net::HeldPort port_;
  std::filesystem::path folder_;
  telemetry::test::TestRing ring_{64};
  telemetry::Collector collector_{{"ns", "job", "worker", "node"}, clock_};
  std::uint64_t key_ = 0;
  std::mutex mutex_;
  std::unique_ptr<TraceService> service_;
  boost::asio::io_context io_{1};
  std::optional<summary::HttpServer> server_;
  std::jthread thread_;
};

struct CollectTest : ::testing::Test {
  Status run(TraceOptions options, const std::function<void()>& when_asked) {
    return collect({{zero.address(), one.address()}, "secret"}, options,
                   [&](const json& line) -> Status {
                     if (line["type"] == "progress") when_asked();
                     if (line["type"] == "rank") ranks[line["rank"]] = line;
                     if (line["type"] == "plan") plan = line;
                     if (line["type"] == "piece")
                       files[line["rank"]] += *decode_base64(line["data"].get<std::string>());
                     types.push_back(line["type"]);
                     return {};
                   });
  }

  Replica zero{0, 20, nanoseconds(0), own_boot_id()};
  Replica one{1, 22, std::chrono::seconds(5), "another machine"};
  std::map<int, json> ranks;
  std::map<int, std::string> files;
  json plan;
  std::vector<std::string> types;
};

constexpr const char* kDone = R"({"sequence":1,"state":"done","reason":"","firstStep":55,)"
                              R"("profilerStepZero":54})";

TEST_F(CollectTest, FilesRecordsAndClocksOfAllRanks) {
  const std::string large(1'300'000, 'z');
  const auto done = run({.steps = 3, .by = "ann"}, [&] {
    for (Replica* replica : {&zero, &one}) {
      replica->put(".json.gz", replica == &zero ? "zero" : large);
      replica->put(".state", kDone);
    }
  });
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(types.back(), "end");
  EXPECT_EQ(files[0], "zero");
  EXPECT_EQ(files[1], large);
  // 10 ms a step, and at least 0.3 s to tell all ranks, beyond the newest step.
  EXPECT_GE(plan["startStep"].get<int>(), 22 + 2 + 30);
  EXPECT_EQ(ranks[1]["node"], "node-1");
  EXPECT_EQ(ranks[1]["profilerStepZero"], 54);
  EXPECT_EQ(ranks[0]["clock"]["offsetNs"], 0) << "one machine";
  const auto off = ranks[1]["clock"]["offsetNs"].get<std::int64_t>() - 5'000'000'000;
  const auto sure = ranks[1]["clock"]["uncertaintyNs"].get<std::int64_t>();
  EXPECT_GT(sure, 0);
  EXPECT_LE(std::abs(off), sure);
  EXPECT_EQ(json::parse(zero.ask("/v1/trace").body)["request"], nullptr) << "it is over";
  EXPECT_EQ(json::parse(one.ask("/v1/trace").body)["request"], nullptr);
}

TEST_F(CollectTest, RecordsHaveTheTimeOfNodeRankZero) {
  ASSERT_TRUE(run({.steps = 4, .records_only = true}, [] { FAIL() << "no rank is asked"; }));
  ASSERT_EQ(ranks[0]["steps"].size(), 4U);
  const auto sure = ranks[1]["clock"]["uncertaintyNs"].get<std::int64_t>();
  for (std::size_t i = 0; i < 4; ++i) {
    // Step n began at n seconds of the monotonic clock, on both.
    const auto first = ranks[0]["steps"][i];
    const auto behind = (ranks[1]["steps"][i]["startUnixNs"].get<std::int64_t>() -
                         first["startUnixNs"].get<std::int64_t>()) -
                        1'000'000'000 * (ranks[1]["steps"][i]["step"].get<std::int64_t>() -
                                         first["step"].get<std::int64_t>());
    EXPECT_LT(std::abs(behind), 20'000'000 + sure) << i;
  }
  EXPECT_TRUE(files.empty());
}

TEST_F(CollectTest, ARankThatFailsOrIsSilentIsNamed) {
  const auto done = run({.steps = 3, .time_limit = std::chrono::seconds(1)}, [&] {
    zero.put(".state", R"({"sequence":1,"state":"failed","reason":"the disk is full"})");
  });
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(ranks[0]["problem"], "the disk is full");
  EXPECT_THAT(ranks[1]["problem"].get<std::string>(),
              HasSubstr("it did not take up the request within 1.0 s: in step 22, phase backward"));
  EXPECT_EQ(ranks[1]["steps"].size(), 3U) << "what it did last";
}

TEST_F(CollectTest, RanksThatStartAgainAreNotWaitedFor) {
  const auto done = run({.steps = 3}, [&] {
    zero.put(".json.gz", "x");
    zero.put(".state", kDone);
    one.end_and_begin(1);
  });
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(ranks[1]["steps"].size(), 3U) << "its last steps are known";
  EXPECT_EQ(ranks[0]["traced"], true);
  EXPECT_EQ(ranks[1]["problem"], "the ranks were started again meanwhile");
}

TEST_F(CollectTest, ASecondCollectorIsRefused) {
  std::string said;
  const auto done = run({.steps = 3, .by = "ann"}, [&] {
    const auto second = collect({{zero.address(), one.address()}, "secret"}, {.by = "bob"},
                                [](const json&) { return Status(); });
    said = second ? "" : second.error().message;
    for (Replica* replica : {&zero, &one}) {
      replica->put(".json.gz", "x");
      replica->put(".state", kDone);
    }
  });
  ASSERT_TRUE(done);
  EXPECT_THAT(said, HasSubstr("a trace of ann is under way (3 steps"));
  EXPECT_EQ(files.size(), 2U) << "the first is not disturbed";
}

TEST_F(CollectTest, ALauncherThatDoesNotAnswerIsNamed) {
  const net::HeldPort nobody("127.0.0.1");
  std::vector<std::string> lost;
  const auto done = collect({{zero.address(), {"127.0.0.1", nobody.port()}}, "secret"},
                            {.records_only = true}, [&](const json& line) -> Status {
                              if (line["type"] == "plan") lost = line["lostLaunchers"];
                              return {};
                            });
  ASSERT_TRUE(done);
  EXPECT_THAT(lost, testing::ElementsAre(HasSubstr("does not answer")));
  const auto none =
      collect({{{"127.0.0.1", nobody.port()}}, "secret"}, {}, [](const json&) { return Status(); });
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, HasSubstr("is the job running?"));
}

}  // namespace
}  // namespace paceline::traces
