// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/message.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "launcher/rendezvous/json_forms.hpp"

namespace paceline::rendezvous {
namespace {

template <typename T>
T round_trip(const T& value) {
  const auto parsed = parse_message(to_json(value));
  EXPECT_TRUE(parsed.has_value()) << (parsed ? "" : parsed.error().message);
  return std::get<T>(parsed.value());
}

Node node(int rank) {
  return {rank,       "worker", rank, 2,       "j-worker-" + std::to_string(rank),
          "10.0.0.1", "node-a", 4,    4 * rank};
}

TEST(Message, EveryKindSurvivesTheTrip) {
  const auto hello = round_trip(Hello{kProtocol, "token", "uid", node(1), 3, 2, 1, 4000});
  EXPECT_EQ(hello.token, "token");
  EXPECT_EQ(hello.node.processes, 4);
  EXPECT_EQ(hello.restarts, 2);
  EXPECT_EQ(hello.start_stage, 1);
  EXPECT_EQ(hello.table_port, 4000);

  const auto start = round_trip(Start{5, 2, "10.0.0.1:4000", 1, 3});
  EXPECT_EQ(start.attempt, 5);
  EXPECT_EQ(start.restarts, 2);
  EXPECT_EQ(start.table_from, "10.0.0.1:4000");
  EXPECT_EQ(start.stage, 1);
  EXPECT_EQ(start.last_stage, 3);
  EXPECT_EQ(start.node_rank, -1);
  EXPECT_EQ(round_trip(Start{5, 2, "", 1, 3, 7}).node_rank, 7);
  round_trip(StandBy{});
  EXPECT_EQ(round_trip(Imports{R"({"modules":{"torch":""}})"}).text, R"({"modules":{"torch":""}})");
  EXPECT_EQ(round_trip(Leave{5}).attempt, 5);
  EXPECT_EQ(round_trip(StartStage{5, 2}).stage, 2);
  EXPECT_EQ(round_trip(Started{5}).attempt, 5);
  const auto table = round_trip(Table{make_rank_table(5, 29505, {node(0), node(1)})}).table;
  EXPECT_EQ(table.attempt, 5);
  EXPECT_EQ(table.world_size, 8);
  EXPECT_EQ(table.nodes[1].first_rank, 4);
  EXPECT_EQ(table.master_address, "10.0.0.1");
  EXPECT_EQ(round_trip(NeedTable{4}).attempt, 4);
  EXPECT_EQ(round_trip(TableRequest{"token", "uid", 4}).job_uid, "uid");

  Failure failure{3, std::nullopt, 9, true, "OOMKilled", {"a", "b"}};
  const auto failed = round_trip(Failed{7, failure});
  EXPECT_EQ(failed.attempt, 7);
  EXPECT_EQ(failed.failure.local_rank, 3);
  EXPECT_EQ(failed.failure.signal, 9);
  EXPECT_FALSE(failed.failure.exit_code.has_value());
  EXPECT_TRUE(failed.failure.oom);
  EXPECT_EQ(failed.failure.last_lines.size(), 2U);
  EXPECT_EQ(failed.failure.cause, Cause::kOwn);
  for (const Cause cause : {Cause::kKilled, Cause::kOwn, Cause::kPeer}) {
    failure.cause = cause;
    failure.ago = std::chrono::milliseconds(1500);
    EXPECT_EQ(round_trip(Failed{7, failure}).failure.cause, cause);
    EXPECT_EQ(round_trip(Failed{7, failure}).failure.ago, failure.ago);
  }

  const auto finish =
      round_trip(Finish{Verdict::kFailed, 7, 3, "why", Culprit{5, 1, "pod", 7, failure}});
  EXPECT_EQ(finish.verdict, Verdict::kFailed);
  EXPECT_EQ(finish.culprit->rank, 5);
  EXPECT_EQ(finish.culprit->failure.reason, "OOMKilled");
  EXPECT_FALSE(round_trip(Finish{}).culprit.has_value());

  telemetry::RankSummary rank;
  rank.rank = 6;
  rank.step = 1200;
  rank.window[3] = 0.5;
  EXPECT_EQ(round_trip(Heartbeat{{rank}}).ranks.at(0).window[3], 0.5);
  EXPECT_EQ(form(rank).count("deviceTotal"), 0U) << "absent where no device is measured";
  rank.device_window[3] = 0.25;
  rank.device_total[3] = 1.25;
  rank.device_follows = 0.75;
  const auto device = round_trip(Heartbeat{{rank}}).ranks.at(0);
  EXPECT_EQ(device.device_window, rank.device_window);
  EXPECT_EQ(device.device_total, rank.device_total);
  EXPECT_EQ(device.device_follows, 0.75);
  EXPECT_FALSE(round_trip(Heartbeat{{rank}}).ranks.at(0).live.has_value());
  rank.live = {.phase = 4, .seconds = 1.5, .step = 9, .silent = 0.5, .collective = 12, .group = 3};
  EXPECT_EQ(round_trip(Heartbeat{{rank}}).ranks.at(0).live->done, -1);
  rank.live->done = 11;
  rank.live->group_size = 8;
  rank.lost_processor = {.waited = 2, .throttled = 3, .stolen = 4};
  const auto told = round_trip(Heartbeat{{rank}}).ranks.at(0);
  ASSERT_TRUE(told.live && told.lost_processor);
  EXPECT_EQ(told.live->phase, 4U);
  EXPECT_EQ(told.live->seconds, 1.5);
  EXPECT_EQ(told.live->collective, 12U);
  EXPECT_EQ(told.live->done, 11);
  EXPECT_EQ(told.live->group_size, 8U);
  EXPECT_EQ(told.lost_processor->throttled, 3);
  EXPECT_EQ(round_trip(CaptureStacks{4}).attempt, 4);
  EXPECT_EQ(round_trip(OpenWindow{4}).attempt, 4);

  for (const SaveWord word : {SaveWord::kAsk, SaveWord::kHold, SaveWord::kReached, SaveWord::kAt,
                              SaveWord::kSaved, SaveWord::kEnded})
    EXPECT_EQ(round_trip(Save{.word = word}).word, word);
  const auto save = round_trip(Save{SaveWord::kSaved, 4, 1LL << 40, 8, 7});
  EXPECT_EQ(save.attempt, 4);
  EXPECT_EQ(save.step, 1LL << 40);
  EXPECT_EQ(save.ranks, 8);
  EXPECT_EQ(save.saved, 7);
  EXPECT_FALSE(save.go_on);
  const auto going_on = round_trip(Save{.word = SaveWord::kAt, .go_on = true, .gone = 3});
  EXPECT_TRUE(going_on.go_on);
  EXPECT_EQ(going_on.gone, 3);
  const auto earlier =
      parse_message(R"({"type":"save","word":"hold","attempt":4,"step":-1,"ranks":0,"saved":0})");
  ASSERT_TRUE(earlier.has_value()) << earlier.error().message;
  EXPECT_FALSE(std::get<Save>(*earlier).go_on);
  const auto captured = round_trip(CapturedStacks{4, {{6, "a\nb"}}});
  EXPECT_EQ(captured.attempt, 4);
  EXPECT_EQ(captured.ranks.at(0).rank, 6);
  EXPECT_EQ(captured.ranks.at(0).text, "a\nb");
  EXPECT_FALSE(parse_message(to_json(CapturedStacks{4, {{6, std::string(kMostStack + 1, 'x')}}}))
                   .has_value());
  EXPECT_EQ(round_trip(Stop{4}).attempt, 4);
  EXPECT_EQ(round_trip(Stop{4}).leave, "");
  EXPECT_EQ(round_trip(Stop{4, "its node is replaced"}).leave, "its node is replaced");
  EXPECT_EQ(round_trip(Stopping{4}).attempt, 4);
  EXPECT_EQ(round_trip(Stopped{4}).attempt, 4);
  EXPECT_EQ(round_trip(Done{4}).attempt, 4);
  EXPECT_EQ(round_trip(Refused{"no"}).reason, "no");
  EXPECT_EQ(round_trip(Refused{"no", 7}).protocol, 7);
}

TEST(Message, NumbersThatARankMadeUpCostNoHeartbeat) {
  constexpr std::uint64_t kMost = 1ULL << 53U;
  telemetry::RankSummary rank;
  rank.step = rank.samples = rank.tokens = ~0ULL;
  rank.use.last_user_step = -7;
  rank.live = {.step = ~0ULL, .collective = ~0ULL, .group = ~0ULL};
  const auto told = round_trip(Heartbeat{{rank}}).ranks.at(0);
  EXPECT_EQ(told.step, kMost);
  EXPECT_EQ(told.samples, kMost);
  EXPECT_EQ(told.tokens, kMost);
  EXPECT_EQ(told.use.last_user_step, -1);
  ASSERT_TRUE(told.live);
  EXPECT_EQ(told.live->group, kMost);
}

TEST(Message, AMemberSendsNoTable) {
  const std::string table = to_json(Table{make_rank_table(5, 29505, {node(0)})});
  EXPECT_TRUE(parse_message(table).has_value());
  EXPECT_FALSE(parse_message(table, Sender::kMember).has_value())
      << "a few bytes of a table would be thousands of rows in memory";
}

TEST(Message, AHelloOfProtocol1IsUnderstoodSoThatItCanBeRefusedWithAReason) {
  auto old = nlohmann::json::parse(to_json(Hello{1, "token", "uid", node(1), 0, 0, 0}));
  old.erase("tablePort");
  const auto parsed = parse_message(old.dump());
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
  EXPECT_EQ(std::get<Hello>(*parsed).protocol, 1);
}

TEST(Message, LogLinesNeedNotBeUtf8) {
  Failure failure{0, 1, std::nullopt, false, "Exit", {"\xff\xfe\x00 broken"}};
  EXPECT_EQ(round_trip(Failed{0, failure}).failure.last_lines.size(), 1U);
}

TEST(Message, AFailureOfAnEarlierVersionTellsNeitherCauseNorTime) {
  const auto parsed = parse_message(
      R"({"type":"failed","attempt":0,"localRank":1,"exitCode":1,"oom":false,"class":"Exit","lastLines":[]})");
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
  EXPECT_EQ(std::get<Failed>(*parsed).failure.cause, Cause::kOwn);
  EXPECT_EQ(std::get<Failed>(*parsed).failure.ago.count(), 0);
}

TEST(Message, NamesTheFieldThatIsWrong) {
  const auto error = [](std::string_view text) {
    const auto parsed = parse_message(text);
    return parsed ? std::string("accepted") : parsed.error().message;
  };
  EXPECT_NE(error("").find("not JSON"), std::string::npos);
  EXPECT_NE(error("[]").find("not an object"), std::string::npos);
  EXPECT_NE(error(R"({"type":"launch"})").find("type"), std::string::npos);
  EXPECT_NE(error(R"({"type":5})").find("type"), std::string::npos);
  EXPECT_NE(error(R"({"type":"stop"})").find("attempt"), std::string::npos);
  EXPECT_NE(error(R"({"type":"stop","attempt":-1})").find("attempt"), std::string::npos);
  EXPECT_NE(error(R"({"type":"stop","attempt":99999999999999999999})").find("attempt"),
            std::string::npos);
  EXPECT_NE(error(R"({"type":"stop","attempt":"1"})").find("attempt"), std::string::npos);
  const auto failed = [](const std::string& more) {
    return R"({"type":"failed","attempt":0,"localRank":1,"oom":false,"class":"Exit","lastLines":[],)" +
           more + "}";
  };
  EXPECT_NE(error(failed(R"("cause":"Elsewhere")")).find("cause is none of"), std::string::npos);
  EXPECT_NE(error(failed(R"("agoNs":-1)")).find("agoNs"), std::string::npos);
  EXPECT_NE(error(R"({"type":"start","attempt":0,"restarts":0})").find("tableFrom"),
            std::string::npos);
  EXPECT_NE(error(R"({"type":"heartbeat","ranks":[1]})").find("not an object"), std::string::npos);
  EXPECT_NE(error(R"({"type":"finish","verdict":"Maybe","attempt":0,"restarts":0,"message":""})")
                .find("verdict"),
            std::string::npos);
  EXPECT_NE(error(R"({"type":"hello","protocol":1,"token":")" + std::string(5000, 'x') + R"("})")
                .find("token"),
            std::string::npos);
  EXPECT_NE(error(std::string(200'000, '[')).find("not JSON"), std::string::npos);
}

}  // namespace
}  // namespace paceline::rendezvous
