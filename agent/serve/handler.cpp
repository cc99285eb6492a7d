// SPDX-License-Identifier: Apache-2.0
#include "common/base/log.hpp"

#include "agent/serve/handler.hpp"

#include <algorithm>
#include <expected>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

namespace paceline::agent {
namespace {

constexpr std::string_view kScheme = "Bearer ";

http::Response refusal(int status, std::string_view why, http::Header header = {}) {
  http::Response response{
      status, {{"Content-Type", "application/json"}}, nlohmann::json{{"error", why}}.dump() + "\n"};
  if (!header.name.empty()) response.headers.push_back(std::move(header));
  return response;
}

/// The token in the characters of RFC 6750; empty if there is none.
std::string token_of(const http::Request& request) {
  const std::string_view value = request.header("Authorization");
  if (!value.starts_with(kScheme)) return {};
  const std::string_view token = value.substr(kScheme.size());
  const auto allowed = [](unsigned char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           std::string_view("-._~+/=").find(static_cast<char>(c)) != std::string_view::npos;
  };
  return std::ranges::all_of(token, allowed) ? std::string(token) : std::string();
}

/// The client as the API server knows it; an error response for clients without access.
std::expected<Visitor, http::Response> admitted(const http::Request& request, AccessReview& access,
                                                Wish wish) {
  const std::string token = token_of(request);
  const http::Header challenge{"WWW-Authenticate", "Bearer"};
  if (token.empty())
    return std::unexpected(refusal(401, "send `Authorization: Bearer TOKEN`", challenge));
  auto visitor = access.review(token, wish);
  if (!visitor && visitor.error().code == Code::kExhausted)
    return std::unexpected(refusal(429, visitor.error().message, {"Retry-After", "1"}));
  if (!visitor) {
    spdlog::warn("cannot ask the API server about a reader: {}", to_string(visitor.error()));
    return std::unexpected(
        refusal(503, "the API server could not be asked who you are", {"Retry-After", "5"}));
  }
  if (visitor->access == Access::kUnknown)
    return std::unexpected(
        refusal(401, "the token is not valid for the audience of the agents", challenge));
  if (visitor->access == Access::kDenied) {
    return std::unexpected(refusal(
        403,
        wish == Wish::kRead
            ? "this account may not `get` the NodeFabric of this node (nodefabrics.paceline.dev)"
            : "this account may not `create` the links of this node's NodeFabric "
              "(nodefabrics.paceline.dev/links)"));
  }
  return std::move(*visitor);
}

http::Response answer(const http::Request& request, const Documents& documents,
                      AccessReview& access, LinkService* links, const std::stop_token& stop) {
  const bool measuring = request.target == "/v1/links" || request.target == "/v1/links/tickets";
  const auto visitor = admitted(request, access, measuring ? Wish::kMeasure : Wish::kRead);
  if (!visitor) return visitor.error();
  if (measuring) {
    if (request.method != "POST") return refusal(405, "only POST", {"Allow", "POST"});
    if (links == nullptr)
      return refusal(
          404, "this agent measures no links: the chart's agent.links.enabled switches it on");
    return request.target == "/v1/links" ? links->measure(request.body, stop)
                                         : links->ticket(visitor->name);
  }
  if (request.method != "GET") return refusal(405, "only GET", {"Allow", "GET"});
  if (request.target != "/v1/fabric" && request.target != "/v1/checks")
    return refusal(404, "there are /v1/fabric, /v1/checks and /v1/links");
  const auto latest = documents.latest();
  if (!latest) return refusal(503, "the first probe has not ended", {"Retry-After", "1"});
  return {200,
          {{"Content-Type", "application/json"}, {"Cache-Control", "no-store"}},
          request.target == "/v1/fabric" ? latest->fabric : latest->checks};
}

}  // namespace

http::ServerHandler serve_documents(const Documents& documents, AccessReview& access,
                                    LinkService* links) {
  return [&documents, &access, links](const http::Request& request, http::ResponseWriter& writer) {
    writer.respond(answer(request, documents, access, links, writer.stop()));
  };
}

}  // namespace paceline::agent
