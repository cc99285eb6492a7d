// SPDX-License-Identifier: Apache-2.0
#include "common/kube/fake/requests.hpp"

#include <algorithm>
#include <charconv>

#include "common/kube/api/object_meta.hpp"

namespace paceline::kube {
namespace {

int hex(char c) {
  return c >= '0' && c <= '9'                 ? c - '0'
         : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                              : -1;
}

std::string unescape(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && hex(text[i + 1]) >= 0 && hex(text[i + 2]) >= 0) {
      plain += static_cast<char>(hex(text[i + 1]) * 16 + hex(text[i + 2]));
      i += 2;
    } else {
      plain += text[i] == '+' ? ' ' : text[i];
    }
  }
  return plain;
}

std::vector<std::string> split(std::string_view text, char at) {
  std::vector<std::string> pieces;
  while (!text.empty()) {
    const auto end = text.find(at);
    if (end != 0) pieces.push_back(unescape(text.substr(0, end)));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return pieces;
}

http::Response json_response(int status, std::string body) {
  return {status, {{"Content-Type", "application/json"}}, std::move(body)};
}

}  // namespace

std::unexpected<Refusal> refuse(int code, std::string reason, std::string message) {
  return std::unexpected(Refusal{code, std::move(reason), std::move(message)});
}

http::Response status_response(const Refusal& refusal) {
  const Document status = {
      {"kind", "Status"},    {"apiVersion", "v1"},         {"metadata", Document::object()},
      {"status", "Failure"}, {"message", refusal.message}, {"reason", refusal.reason},
      {"code", refusal.code}};
  return json_response(refusal.code, status.dump());
}

std::string Route::parameter(std::string_view name) const {
  const auto found = query.find(name);
  return found == query.end() ? std::string() : found->second;
}

Outcome<Route> route_of(const std::string& target) {
  Route route;
  const auto mark = target.find('?');
  if (mark != std::string::npos) {
    std::string_view rest = std::string_view(target).substr(mark + 1);
    while (!rest.empty()) {
      const auto end = rest.find('&');
      const std::string_view pair = rest.substr(0, end);
      const auto equals = pair.find('=');
      route.query[unescape(pair.substr(0, equals))] =
          equals == std::string_view::npos ? "" : unescape(pair.substr(equals + 1));
      if (end == std::string_view::npos) break;
      rest.remove_prefix(end + 1);
    }
  }
  const auto pieces = split(std::string_view(target).substr(0, mark), '/');
  const auto unknown = [] {
    return refuse(404, "NotFound", "the server could not find the requested resource");
  };
  std::size_t at = 0;
  const auto next = [&] { return at < pieces.size() ? pieces[at++] : std::string(); };
  const std::string root = next();
  const std::string group = root == "apis" ? next() : std::string();
  const std::string version = next();
  if ((root != "api" && root != "apis") || version.empty()) return unknown();
  std::string plural = next();
  if (plural == "namespaces" && pieces.size() - at >= 2) {
    route.ns = next();
    plural = next();
  }
  route.name = next();
  route.subresource = next();
  const Resource* resource = find_resource(group, version, plural);
  if (resource == nullptr || at != pieces.size() ||
      (resource->namespaced && route.ns.empty() && !route.name.empty()))
    return unknown();
  route.resource = *resource;
  return route;
}

Outcome<std::string> list(FakeModel& cluster, const Route& route) {
  using Snapshot = FakeModel::Snapshot;
  Snapshot snapshot;
  std::size_t from = 0;
  std::uint64_t id = 0;
  if (const std::string token = route.parameter("continue"); !token.empty()) {
    const auto dot = token.find('.');
    std::from_chars(token.data(), token.data() + std::min(dot, token.size()), id);
    if (dot != std::string::npos)
      std::from_chars(token.data() + dot + 1, token.data() + token.size(), from);
    const auto found = cluster.snapshots.find(id);
    if (found == cluster.snapshots.end() || from > found->second.items.size()) {
      return refuse(
          410, "Expired",
          "The provided continue parameter is too old to display a consistent list result.");
    }
    snapshot = found->second;
  } else {
    snapshot.version = cluster.version;
    const Selector selector{route.parameter("labelSelector"), route.parameter("fieldSelector")};
    for (const auto& [key, stored] : cluster.collections[route.resource.plural]) {
      if (!route.ns.empty() && stored.object["metadata"].value("namespace", "") != route.ns)
        continue;
      const auto fits = matches(selector, stored.object);
      if (!fits) return std::unexpected(fits.error());
      if (*fits) snapshot.items.push_back(stored.text);
    }
  }
  std::size_t limit = snapshot.items.size();
  if (const std::string text = route.parameter("limit"); !text.empty())
    std::from_chars(text.data(), text.data() + text.size(), limit);
  const std::size_t to = std::min(snapshot.items.size(), from + limit);
  std::string token;
  if (to < snapshot.items.size()) {
    if (id == 0) {
      id = cluster.next_snapshot++;
      cluster.snapshots.emplace(id, snapshot);
      if (cluster.snapshots.size() > 64) cluster.snapshots.erase(cluster.snapshots.begin());
    }
    token = std::to_string(id) + "." + std::to_string(to);
  } else if (id != 0) {
    cluster.snapshots.erase(id);
  }
  std::string body = R"({"kind":")" + std::string(route.resource.kind) + R"(List","apiVersion":")" +
                     route.resource.api_version() + R"(","metadata":{"resourceVersion":")" +
                     std::to_string(snapshot.version) + "\"";
  if (!token.empty()) {
    body += R"(,"continue":")" + token + R"(","remainingItemCount":)" +
            std::to_string(snapshot.items.size() - to);
  }
  body += R"(},"items":[)";
  for (std::size_t i = from; i < to; ++i) {
    if (i > from) body += ',';
    body += *snapshot.items[i];
  }
  return body + "]}";
}

Outcome<std::string> patch(FakeModel& cluster, const Route& route, const http::Request& request,
                           bool strict, bool dry_run, int& status) {
  std::string type;
  for (const auto& header : request.headers) {
    if (header.name == "Content-Type") type = header.value;
  }
  const bool apply = type == "application/apply-patch+yaml";
  if (!apply && type != "application/merge-patch+json") {
    return refuse(415, "UnsupportedMediaType",
                  "the body of the request was in an unknown format - accepted media types here: "
                  "application/merge-patch+json, application/apply-patch+yaml");
  }
  const Document changes = Document::parse(request.body, nullptr, false);
  if (!changes.is_object()) return refuse(400, "BadRequest", "the patch is not a JSON object");
  if (apply && route.parameter("fieldManager").empty()) {
    return refuse(400, "BadRequest",
                  "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is "
                  "required for apply patch");
  }
  const auto* existing = cluster.find(route.resource, route.ns, route.name);
  if (existing == nullptr) {
    if (!apply)
      return refuse(404, "NotFound", full_name(route.resource, route.name) + " not found");
    status = 201;
    return cluster.create(route.resource, route.ns, changes, strict, dry_run);
  }
  Document object = existing->object;
  if (!changes.contains("metadata") || !changes["metadata"].contains("resourceVersion"))
    object["metadata"].erase("resourceVersion");
  object.merge_patch(changes);
  return cluster.replace(route.resource, route.ns, route.name, route.subresource, std::move(object),
                         strict, dry_run);
}

http::Response serve(FakeModel& cluster, const http::Request& request) {
  if (request.target == "/version")
    return json_response(200, R"({"major":"1","minor":"34","gitVersion":"v1.34.0-fake"})");
  if (request.target == "/readyz" || request.target == "/healthz") return {200, {}, "ok"};
  const auto route = route_of(request.target);
  if (!route) return status_response(route.error());
  const bool strict = route->parameter("fieldValidation") == "Strict";
  const bool dry_run = route->parameter("dryRun") == "All";
  int status = 200;
  Outcome<std::string> answer = refuse(
      405, "MethodNotAllowed", "the server does not allow this method on the requested resource");
  if (request.method == "GET") {
    ++cluster.counts.reads;
    if (route->name.empty()) {
      answer = list(cluster, *route);
    } else if (const auto* stored = cluster.find(route->resource, route->ns, route->name)) {
      answer = *stored->text;
    } else {
      answer = refuse(404, "NotFound", full_name(route->resource, route->name) + " not found");
    }
  } else if (request.method == "PATCH" && !route->name.empty()) {
    answer = patch(cluster, *route, request, strict, dry_run, status);
    if (answer && !dry_run) {
      ++cluster.counts.patches;
      status == 201 ? --cluster.counts.creates
                    : --cluster.counts.updates;  // already counted by the verb that applied it
    }
  } else {
    Document body = Document::parse(request.body.empty() ? "{}" : request.body, nullptr, false);
    if (!body.is_object()) {
      answer = refuse(400, "BadRequest", "the body of the request is not a JSON object");
    } else if (request.method == "POST" && route->name.empty()) {
      if (route->resource.namespaced && route->ns.empty()) {
        answer = refuse(405, "MethodNotAllowed",
                        "the server does not allow this method on the requested resource");
      } else {
        status = 201;
        answer = cluster.create(route->resource, route->ns, std::move(body), strict, dry_run);
      }
    } else if (request.method == "PUT" && !route->name.empty()) {
      answer = cluster.replace(route->resource, route->ns, route->name, route->subresource,
                               std::move(body), strict, dry_run);
    } else if (request.method == "DELETE" && !route->name.empty()) {
      const bool dry = dry_run || (body.contains("dryRun") && !body["dryRun"].empty());
      answer = cluster.remove(route->resource, route->ns, route->name, body, dry);
    }
  }
  return answer ? json_response(status, std::move(*answer)) : status_response(answer.error());
}

}  // namespace paceline::kube
