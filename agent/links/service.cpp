// SPDX-License-Identifier: Apache-2.0
#include "agent/links/service.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <optional>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "agent/links/prober.hpp"
#include "common/http/token_file.hpp"
#include "common/kube/api/resource.hpp"

namespace paceline::agent {
namespace {

using nlohmann::json;

constexpr std::chrono::seconds kAskTimeout{5};
constexpr std::size_t kMostWords = 300;

http::Response answer(int status, const json& body) {
  return {status,
          {{"Content-Type", "application/json"}, {"Cache-Control", "no-store"}},
          body.dump(-1, ' ', true, json::error_handler_t::replace) + "\n"};
}

http::Response refusal(int status, const std::string& why, std::chrono::seconds again = {}) {
  http::Response response = answer(status, {{"error", why}});
  if (again.count() > 0) response.headers.push_back({"Retry-After", std::to_string(again.count())});
  return response;
}

http::Response refusal(const Error& error) {
  switch (error.code) {
    case Code::kNotFound: return refusal(404, error.message);
    case Code::kInvalid: return refusal(409, error.message);
    default: return refusal(503, error.message, std::chrono::seconds(5));
  }
}

std::string text_of(const json& object, const char* field) {
  const auto found = object.is_object() ? object.find(field) : object.end();
  return object.is_object() && found != object.end() && found->is_string()
             ? found->get<std::string>()
             : std::string();
}

/// Text from another agent: printable and bounded.
std::string words_of(const http::Response& response) {
  std::string words =
      text_of(json::parse(response.body, nullptr, false), "error").substr(0, kMostWords);
  std::ranges::replace_if(words, [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return words.empty() ? "HTTP " + std::to_string(response.status) : words;
}

std::chrono::seconds again_of(const http::Response& response) {
  const std::string_view value = response.header("Retry-After");
  int seconds = 0;
  std::from_chars(value.data(), value.data() + value.size(), seconds);
  return std::chrono::seconds(std::clamp(seconds, 1, 3600));
}

std::optional<Ticket> ticket_of(const http::Response& response) {
  const json body = json::parse(response.body, nullptr, false);
  const auto bytes = read_ticket(text_of(body, "ticket"));
  const auto port = body.is_object() ? body.find("port") : body.end();
  if (!bytes || port == body.end() || !port->is_number_unsigned() ||
      port->get<std::uint64_t>() == 0 || port->get<std::uint64_t>() > 65535)
    return std::nullopt;
  return Ticket{*bytes, port->get<std::uint16_t>()};
}

}  // namespace

LinkService::LinkService(kube::Api& api, const Clock& clock, LinkStore& book, Reach reach,
                         LinkServiceOptions options, RateLimits limits)
    : api_(api),
      clock_(clock),
      book_(book),
      reach_(std::move(reach)),
      options_(std::move(options)),
      limiter_(clock, limits),
      responder_(clock, options_.responder) {}

Result<http::Endpoint> LinkService::find(const std::string& peer, const std::stop_token& stop) {
  const auto text = api_.get(kube::kNodeFabrics, "", peer, stop);
  if (!text && text.error().code == Code::kNotFound) {
    return fail(Code::kNotFound, Origin::kKube,
                "there is no NodeFabric " + peer +
                    ": name a node as `kubectl get nodes` shows it, with a Paceline agent");
  }
  if (!text)
    return fail(Code::kUnavailable, Origin::kKube,
                "the API server did not tell where the agent of " + peer + " is");
  const json object = json::parse(*text, nullptr, false);
  const json status = object.is_object() ? object.value("status", json()) : json();
  const std::string address = text_of(status, "agentAddress");
  auto url = http::parse_server_url("https://" + address);
  if (address.empty() || !url || !url->prefix.empty()) {
    return fail(Code::kInvalid, Origin::kKube,
                "the agent of " + peer +
                    " says no address where it is asked: the chart's agent.api.tlsSecret and "
                    "agent.links.enabled "
                    "must be set");
  }
  url->endpoint.ca_file = options_.ca_file;
  url->endpoint.server_name = options_.server_name;
  return std::move(url->endpoint);
}

http::Response LinkService::measure(const std::string& body, const std::stop_token& stop) {
  const std::string peer = text_of(json::parse(body, nullptr, false), "peer");
  if (!is_node_name(peer))
    return refusal(400, "send {\"peer\": \"NODE\"}, with the name of a node");
  if (peer == options_.node_name)
    return refusal(400, "peer " + peer + " is this node itself: name another");
  const auto token = http::read_token(options_.token_file);
  if (!token) return refusal(token.error());
  const auto permit = limiter_.begin("to " + peer);
  if (!permit) return refusal(429, permit.error().why, permit.error().in);
  (*permit)->ends_as(PermitEnd::kNothing);
  const auto endpoint = find(peer, stop);
  if (!endpoint) return refusal(endpoint.error());

  http::Request ask;
  ask.method = "POST";
  ask.target = "/v1/links/tickets";
  ask.headers = {{"Authorization", "Bearer " + *token}, {"Content-Type", "application/json"}};
  ask.body = "{}";
  ask.timeout = kAskTimeout;
  const auto given = reach_(*endpoint)->send(ask, stop);
  const std::string who = "the agent of " + peer + " at " + endpoint->host;
  if (!given) return refusal(502, who + " could not be asked: " + given.error().message);
  if (given->status == 429) return refusal(429, who + ": " + words_of(*given), again_of(*given));
  if (given->status != 200) return refusal(502, who + " refused: " + words_of(*given));
  const auto ticket = ticket_of(*given);
  if (!ticket) return refusal(502, who + " gave no ticket");

  (*permit)->ends_as(PermitEnd::kFailure);
  auto link = measure_link(peer, endpoint->host, *ticket, clock_, stop, options_.time);
  if (!link) {
    return refusal(502, "the measurement with " + peer + " at " + endpoint->host + " port " +
                            std::to_string(ticket->port) + " failed: " + link.error().message);
  }
  (*permit)->ends_as(PermitEnd::kSuccess);
  book_.put(*link);
  json view = link_json(*link);
  view["node"] = options_.node_name;
  return answer(200, view);
}

http::Response LinkService::ticket(const std::string& asker) {
  auto permit = limiter_.begin("from " + asker);
  if (!permit) return refusal(429, permit.error().why, permit.error().in);
  const auto ticket = responder_.offer(std::move(*permit));
  if (!ticket) return refusal(503, ticket.error().message, std::chrono::seconds(5));
  return answer(200, {{"ticket", ticket_text(ticket->bytes)}, {"port", ticket->port}});
}

}  // namespace paceline::agent
