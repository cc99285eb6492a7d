// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/message.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

#include "launcher/rendezvous/frame.hpp"
#include "launcher/rendezvous/json_forms.hpp"

namespace paceline::rendezvous {
namespace {

using nlohmann::json;

// in the order of Cause
constexpr std::array<std::string_view, 3> kCauses{"Killed", "Own", "Peer"};
// in the order of SaveWord
constexpr std::array<std::string_view, 6> kSaveWords{"ask", "hold",  "reached",
                                                     "at",  "saved", "ended"};
// nanoseconds: 104 days
constexpr std::int64_t kMostAgo = 1LL << 53;
constexpr std::size_t kLongestReason = 4096;

json write(const Hello& hello) {
  json object = form(hello.node);
  object.update({{"type", "hello"},
                 {"protocol", hello.protocol},
                 {"token", hello.token},
                 {"jobUid", hello.job_uid},
                 {"attempt", hello.attempt},
                 {"restarts", hello.restarts},
                 {"startStage", hello.start_stage},
                 {"tablePort", hello.table_port}});
  return object;
}
json write(const Refused& refused) {
  return {{"type", "refused"}, {"reason", refused.reason}, {"protocol", refused.protocol}};
}
json write(const Start& start) {
  json object = {{"type", "start"},
                 {"attempt", start.attempt},
                 {"restarts", start.restarts},
                 {"tableFrom", start.table_from},
                 {"stage", start.stage},
                 {"lastStage", start.last_stage}};
  if (start.node_rank >= 0) object["nodeRank"] = start.node_rank;
  return object;
}
json write(const StandBy&) { return {{"type", "standBy"}}; }
json write(const Imports& imports) { return {{"type", "imports"}, {"text", imports.text}}; }
json write(const Leave& leave) { return {{"type", "leave"}, {"attempt", leave.attempt}}; }
json write(const StartStage& next) {
  return {{"type", "startStage"}, {"attempt", next.attempt}, {"stage", next.stage}};
}
json write(const Started& started) { return {{"type", "started"}, {"attempt", started.attempt}}; }
json write(const Table& table) {
  json object = columns_form(table.table);
  object["type"] = "table";
  return object;
}
json write(const NeedTable& need) { return {{"type", "needTable"}, {"attempt", need.attempt}}; }
json write(const TableRequest& request) {
  return {{"type", "tableRequest"},
          {"token", request.token},
          {"jobUid", request.job_uid},
          {"attempt", request.attempt}};
}
json write(const Failed& failed) {
  json object = form(Culprit{0, 0, "", failed.attempt, failed.failure});
  object["type"] = "failed";
  object["cause"] = kCauses[static_cast<std::size_t>(failed.failure.cause)];
  object["agoNs"] = std::clamp(failed.failure.ago.count(), std::int64_t{0}, kMostAgo);
  return object;
}
json write(const Stop& stop) {
  json object = {{"type", "stop"}, {"attempt", stop.attempt}};
  if (!stop.leave.empty()) object["leave"] = stop.leave;
  return object;
}
json write(const Stopping& stopping) {
  return {{"type", "stopping"}, {"attempt", stopping.attempt}};
}
json write(const Stopped& stopped) { return {{"type", "stopped"}, {"attempt", stopped.attempt}}; }
json write(const Done& done) { return {{"type", "done"}, {"attempt", done.attempt}}; }
json write(const Finish& finish) {
  return {{"type", "finish"},
          {"verdict", finish.verdict == Verdict::kSucceeded ? "Succeeded" : "Failed"},
          {"attempt", finish.attempt},
          {"restarts", finish.restarts},
          {"message", finish.message},
          {"culprit", finish.culprit ? form(*finish.culprit) : json()}};
}
json write(const Heartbeat& beat) {
  json ranks = json::array();
  for (const telemetry::RankSummary& rank : beat.ranks) ranks.push_back(form(rank));
  return {{"type", "heartbeat"}, {"ranks", std::move(ranks)}};
}
json write(const CaptureStacks& capture) {
  return {{"type", "captureStacks"}, {"attempt", capture.attempt}};
}
json write(const CapturedStacks& captured) {
  json ranks = json::array();
  for (const RankStack& rank : captured.ranks)
    ranks.push_back({{"rank", rank.rank}, {"text", rank.text}});
  return {{"type", "capturedStacks"}, {"attempt", captured.attempt}, {"ranks", std::move(ranks)}};
}
json write(const OpenWindow& window) {
  return {{"type", "openWindow"}, {"attempt", window.attempt}};
}
json write(const Save& save) {
  return {{"type", "save"},          {"word", kSaveWords[static_cast<std::size_t>(save.word)]},
          {"attempt", save.attempt}, {"step", save.step},
          {"ranks", save.ranks},     {"saved", save.saved},
          {"goOn", save.go_on},      {"gone", save.gone}};
}

int read_attempt(JsonFields& fields) {
  return static_cast<int>(fields.integer("attempt", 0, kMostAttempts));
}

int read_stage(JsonFields& fields, std::string_view key) {
  return static_cast<int>(fields.integer(key, 0, kMostStages));
}

Hello read_hello(const json& object, JsonFields& fields, std::string& problem) {
  Hello hello;
  hello.protocol = static_cast<int>(fields.integer("protocol", 0, 1'000'000));
  hello.token = fields.text("token");
  hello.job_uid = fields.text("jobUid");
  hello.attempt = read_attempt(fields);
  hello.restarts = static_cast<int>(fields.integer("restarts", 0, kMostAttempts));
  if (hello.protocol != kProtocol) {
    // The launcher of another version has other fields; it must still be told why it is refused.
    hello.node.pod_name = fields.text("podName");
    hello.node.address = fields.text("address");
    return hello;
  }
  hello.node = read_node(object, problem);
  hello.start_stage = read_stage(fields, "startStage");
  hello.table_port = static_cast<std::uint16_t>(fields.integer("tablePort", 0, 65535));
  return hello;
}

// Launchers of earlier versions send neither cause nor time.
Failed read_failed(const json& object, JsonFields& fields, std::string& problem) {
  Failed failed{read_attempt(fields), read_failure(object, problem)};
  if (fields.find("agoNs") != nullptr)
    failed.failure.ago = std::chrono::nanoseconds(fields.integer("agoNs", 0, kMostAgo));
  if (fields.find("cause") != nullptr) {
    const auto* const found = std::find(kCauses.begin(), kCauses.end(), fields.text("cause", 32));
    if (found == kCauses.end()) {
      fields.note("cause", "is none of Killed, Own and Peer");
    } else {
      failed.failure.cause = static_cast<Cause>(found - kCauses.begin());
    }
  }
  return failed;
}

Finish read_finish(JsonFields& fields, std::string& problem) {
  Finish finish;
  const std::string verdict = fields.text("verdict");
  if (verdict != "Succeeded" && verdict != "Failed")
    fields.note("verdict", "is neither Succeeded nor Failed");
  finish.verdict = verdict == "Succeeded" ? Verdict::kSucceeded : Verdict::kFailed;
  finish.attempt = read_attempt(fields);
  finish.restarts = static_cast<int>(fields.integer("restarts", 0, kMostAttempts));
  finish.message = fields.text("message", 64 * 1024);
  if (const json* culprit = fields.find("culprit"))
    finish.culprit = read_culprit(*culprit, problem);
  return finish;
}

CapturedStacks read_stacks(JsonFields& fields, std::string& problem) {
  CapturedStacks captured{read_attempt(fields), {}};
  for (const json& entry : fields.array("ranks", kMostReportedRanks)) {
    JsonFields rank(entry, problem, "ranks");
    captured.ranks.push_back(
        {static_cast<int>(rank.integer("rank", 0, kMostRanks)), rank.text("text", kMostStack)});
  }
  return captured;
}

Save read_save(JsonFields& fields) {
  Save save{.attempt = read_attempt(fields),
            .step = fields.integer("step", -1, kMostSaveStep),
            .ranks = static_cast<int>(fields.integer("ranks", 0, kMostRanks)),
            .saved = static_cast<int>(fields.integer("saved", 0, kMostRanks))};
  // Launchers of earlier versions send neither of these.
  save.go_on = fields.find("goOn") != nullptr && fields.boolean("goOn");
  save.gone = fields.optional_integer("gone", 0, kMostRanks).value_or(0);
  const auto* const found = std::ranges::find(kSaveWords, fields.text("word", 32));
  if (found == kSaveWords.end()) {
    fields.note("word", "is no word of a save");
  } else {
    save.word = static_cast<SaveWord>(found - kSaveWords.begin());
  }
  return save;
}

}  // namespace

std::string to_json(const Message& message) {
  // A program's log lines may hold invalid UTF-8, which is replaced here instead of causing an
  // exception.
  return std::visit(
      [](const auto& value) {
        return write(value).dump(-1, ' ', false, json::error_handler_t::replace);
      },
      message);
}

Result<Message> parse_message(std::string_view text, Sender sender) {
  const json object = json::parse(text, nullptr, false);
  if (object.is_discarded()) return fail(Code::kInvalid, Origin::kProtocol, "a frame is not JSON");
  std::string problem;
  JsonFields fields(object, problem);
  const std::string type = fields.text("type", 32);
  Message message;
  if (type == "hello") {
    message = read_hello(object, fields, problem);
  } else if (type == "refused") {
    message = Refused{fields.text("reason", 4096),
                      fields.optional_integer("protocol", 0, 1000000).value_or(kProtocol)};
  } else if (type == "start") {
    Start start{
        read_attempt(fields), static_cast<int>(fields.integer("restarts", 0, kMostAttempts)),
        fields.text("tableFrom", 64), read_stage(fields, "stage"), read_stage(fields, "lastStage")};
    start.node_rank = fields.optional_integer("nodeRank", 0, kMostNodes - 1).value_or(-1);
    message = std::move(start);
  } else if (type == "standBy") {
    message = StandBy{};
  } else if (type == "imports") {
    message = Imports{fields.text("text", kMemberLimit)};
  } else if (type == "leave") {
    message = Leave{read_attempt(fields)};
  } else if (type == "startStage") {
    message = StartStage{read_attempt(fields), read_stage(fields, "stage")};
  } else if (type == "started") {
    message = Started{read_attempt(fields)};
  } else if (type == "table" && sender == Sender::kServer) {
    message = Table{read_columns_form(object, problem)};
  } else if (type == "needTable") {
    message = NeedTable{read_attempt(fields)};
  } else if (type == "tableRequest") {
    TableRequest request{fields.text("token"), fields.text("jobUid"), read_attempt(fields)};
    message = std::move(request);
  } else if (type == "failed") {
    message = read_failed(object, fields, problem);
  } else if (type == "stop") {
    message = Stop{read_attempt(fields),
                   fields.find("leave") != nullptr ? fields.text("leave", kLongestReason) : ""};
  } else if (type == "stopping") {
    message = Stopping{read_attempt(fields)};
  } else if (type == "stopped") {
    message = Stopped{read_attempt(fields)};
  } else if (type == "done") {
    message = Done{read_attempt(fields)};
  } else if (type == "finish") {
    message = read_finish(fields, problem);
  } else if (type == "heartbeat") {
    Heartbeat beat;
    for (const json& rank : fields.array("ranks", kMostReportedRanks))
      beat.ranks.push_back(read_rank_summary(rank, problem));
    message = std::move(beat);
  } else if (type == "captureStacks") {
    message = CaptureStacks{read_attempt(fields)};
  } else if (type == "capturedStacks") {
    message = read_stacks(fields, problem);
  } else if (type == "openWindow") {
    message = OpenWindow{read_attempt(fields)};
  } else if (type == "save") {
    message = read_save(fields);
  } else {
    fields.note("type", "is not a message of this protocol");
  }
  if (!problem.empty())
    return fail(Code::kInvalid, Origin::kProtocol, "message \"" + type + "\": " + problem);
  return message;
}

}  // namespace paceline::rendezvous
