// SPDX-License-Identifier: Apache-2.0
#include "launcher/exec/exec_message.hpp"

#include <charconv>
#include <system_error>

#include <nlohmann/json.hpp>

#include "common/json/fields.hpp"
#include "launcher/rendezvous/rank_table.hpp"

namespace paceline::exec {
namespace {

using nlohmann::json;

constexpr char kOutputMark = 'o';
constexpr char kErrorMark = 'e';
constexpr char kExitMark = 'x';

json form(const ExecRequest& request) {
  return {{"token", request.token}, {"jobUid", request.job_uid}, {"attempt", request.attempt}};
}

ExecRequest read_request(JsonFields& fields) {
  ExecRequest request;
  request.token = fields.text("token");
  request.job_uid = fields.text("jobUid");
  request.attempt = static_cast<int>(fields.integer("attempt", 0, rendezvous::kMostAttempts));
  return request;
}

std::unexpected<Error> malformed(const std::string& what) {
  return fail(Code::kInvalid, Origin::kProtocol, what);
}

std::string text_of(const json& object) {
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

std::string to_json(const ExecRequest& request) { return text_of(form(request)); }

Result<ExecRequest> parse_request(std::string_view text) {
  const json object = json::parse(text, nullptr, false);
  if (object.is_discarded()) return malformed("the request is not JSON");
  std::string problem;
  JsonFields fields(object, problem);
  auto request = read_request(fields);
  if (!problem.empty()) return malformed("request: " + problem);
  return request;
}

std::string encode_output(AnswerKind kind, std::string_view data) {
  return (kind == AnswerKind::kOutput ? kOutputMark : kErrorMark) + std::string(data);
}

std::string encode_exit(int code) { return kExitMark + std::to_string(code); }

Result<Answer> parse_answer(std::string_view payload) {
  if (payload.empty()) return malformed("an answer is empty");
  const std::string_view rest = payload.substr(1);
  if (payload.front() == kOutputMark) return Answer{AnswerKind::kOutput, rest};
  if (payload.front() == kErrorMark) return Answer{AnswerKind::kError, rest};
  Answer answer{AnswerKind::kExit, rest};
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), answer.code);
  if (payload.front() != kExitMark || error != std::errc() || end != rest.data() + rest.size() ||
      answer.code < 0 || answer.code > 255)
    return malformed("an answer is neither output nor an exit code");
  return answer;
}

std::string to_json(const ExecHosts& hosts) {
  json object = form(hosts.request);
  json& list = object["hosts"] = json::object();
  for (const auto& [name, address] : hosts.hosts) list[name] = net::to_string(address);
  return text_of(object);
}

Result<ExecHosts> parse_hosts(std::string_view text) {
  const json object = json::parse(text, nullptr, false);
  if (object.is_discarded()) return malformed("it is not JSON");
  std::string problem;
  JsonFields fields(object, problem);
  ExecHosts hosts;
  hosts.request = read_request(fields);
  const json* list = fields.find("hosts");
  if (list == nullptr || !list->is_object()) return malformed("hosts is missing");
  for (const auto& [name, value] : list->items()) {
    auto address = net::parse_address(value.is_string() ? value.get<std::string>() : "");
    if (!address) return malformed("hosts." + name + ": " + address.error().message);
    hosts.hosts.emplace(name, *std::move(address));
  }
  if (!problem.empty()) return malformed(problem);
  return hosts;
}

}  // namespace paceline::exec
