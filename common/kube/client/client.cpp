// SPDX-License-Identifier: Apache-2.0
#include "common/kube/client/client.hpp"

#include <charconv>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "common/kube/api/status_error.hpp"
#include "common/kube/client/frame_decoder.hpp"

namespace paceline::kube {
namespace {

using http::Request;
using std::chrono::milliseconds;

constexpr std::string_view kJsonType = "application/json";

/// Query parameters, in the order of their addition.
class Query {
 public:
  explicit Query(std::string target) : target_(std::move(target)) {}
  Query& add(std::string_view key, std::string_view value) {
    if (value.empty()) return *this;
    target_ += first_ ? '?' : '&';
    first_ = false;
    target_.append(key).append("=").append(http::escape(value));
    return *this;
  }
  std::string take() { return std::move(target_); }

 private:
  std::string target_;
  bool first_ = true;
};

void add_write(Query& query, const WriteOptions& options, const std::string& default_manager) {
  if (options.dry_run) query.add("dryRun", "All");
  if (options.strict) query.add("fieldValidation", "Strict");
  query.add("fieldManager",
            options.field_manager.empty() ? default_manager : options.field_manager);
}

void add_json_string(std::string& text, std::string_view value) {
  text += '"';
  for (const char c : value) {
    if (c == '"' || c == '\\') text += '\\';
    text += c;
  }
  text += '"';
}

std::string delete_body(const DeleteOptions& options) {
  std::string body = R"({"apiVersion":"v1","kind":"DeleteOptions")";
  if (options.grace_period_seconds)
    body += ",\"gracePeriodSeconds\":" + std::to_string(*options.grace_period_seconds);
  if (!options.propagation.empty()) {
    body += ",\"propagationPolicy\":";
    add_json_string(body, options.propagation);
  }
  if (!options.uid.empty() || !options.resource_version.empty()) {
    body += ",\"preconditions\":{";
    if (!options.uid.empty()) {
      body += "\"uid\":";
      add_json_string(body, options.uid);
    }
    if (!options.resource_version.empty()) {
      body += options.uid.empty() ? "\"resourceVersion\":" : ",\"resourceVersion\":";
      add_json_string(body, options.resource_version);
    }
    body += '}';
  }
  return body + (options.dry_run ? ",\"dryRun\":[\"All\"]}" : "}");
}

std::string describe(const Request& request) {
  return request.method + " " + request.target.substr(0, request.target.find('?'));
}

void wait(milliseconds time, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any nothing;
  std::unique_lock lock(mutex);
  nothing.wait_for(lock, stop, time, [] { return false; });
}

milliseconds retry_after(const http::Response& response, milliseconds limit) {
  int seconds = 1;
  const std::string_view text = response.header("Retry-After");
  std::from_chars(text.data(), text.data() + text.size(), seconds);
  return std::min(limit, milliseconds(std::max(seconds, 0) * 1000LL));
}

}  // namespace

Client::Client(std::shared_ptr<http::HttpTransport> unary,
               std::shared_ptr<http::HttpTransport> streams, std::shared_ptr<TokenSource> tokens,
               ClientOptions options)
    : unary_(std::move(unary)),
      streams_(std::move(streams)),
      tokens_(std::move(tokens)),
      options_(std::move(options)) {}

Result<Request> Client::prepare(std::string method, std::string target, std::string body,
                                std::string_view content_type) {
  Request request;
  request.method = std::move(method);
  request.target = options_.prefix + target;
  request.body = std::move(body);
  request.timeout = options_.timeout;
  request.headers = {{"Accept", std::string(kJsonType)}, {"User-Agent", options_.user_agent}};
  if (!request.body.empty()) request.headers.push_back({"Content-Type", std::string(content_type)});
  if (tokens_) {
    auto token = tokens_->token();
    if (!token) return std::unexpected(token.error());
    if (!token->empty()) request.headers.push_back({"Authorization", "Bearer " + *token});
  }
  return request;
}

bool Client::waited_as_told(const Request& request, const http::Response& response, int& repeated,
                            const std::stop_token& stop) const {
  // Repeat only after 429, which promises that nothing was done. A write answered with 5xx may have
  // been applied, so its caller decides.
  const bool harmless =
      response.status == 429 || (response.status == 503 && request.method == "GET" &&
                                 !response.header("Retry-After").empty());
  if (!harmless || repeated >= options_.throttle_retries) return false;
  ++repeated;
  wait(retry_after(response, options_.max_retry_after), stop);
  return !stop.stop_requested();
}

void Client::tell(const CallName& name, const Result<http::Response>& response) const {
  if (options_.answered) options_.answered(name, response ? response->status : 0);
}

Result<std::string> Client::call(const CallName& name, Request request,
                                 const std::stop_token& stop) {
  bool renewed = false;
  for (int repeated = 0;;) {
    auto response = unary_->send(request, stop);
    tell(name, response);
    if (!response) return std::unexpected(response.error());
    if (response->status < 300) return std::move(response->body);
    Error error = error_of(response->status, response->body, describe(request));
    if (response->status == 401 && tokens_ && !renewed && tokens_->refused()) {
      renewed = true;
      auto token = tokens_->token();
      if (!token) return std::unexpected(token.error());
      std::erase_if(request.headers,
                    [](const http::Header& header) { return header.name == "Authorization"; });
      request.headers.push_back({"Authorization", "Bearer " + *token});
      continue;
    }
    if (waited_as_told(request, *response, repeated, stop)) continue;
    if (stop.stop_requested())
      return fail(Code::kCancelled, Origin::kKube, describe(request) + ": stopped");
    return std::unexpected(std::move(error));
  }
}

Result<std::string> Client::get(const Resource& resource, const std::string& ns,
                                const std::string& name, const std::stop_token& stop) {
  auto request = prepare("GET", path_of(resource, ns, name), {}, {});
  if (!request) return std::unexpected(request.error());
  return call({"get", resource.plural}, std::move(*request), stop);
}

Result<std::string> Client::list(const Resource& resource, const std::string& ns,
                                 const ListOptions& options, const std::stop_token& stop) {
  Query query(path_of(resource, ns));
  query.add("labelSelector", options.label_selector)
      .add("fieldSelector", options.field_selector)
      .add("continue", options.continue_token);
  if (options.limit > 0) query.add("limit", std::to_string(options.limit));
  auto request = prepare("GET", query.take(), {}, {});
  if (!request) return std::unexpected(request.error());
  return call({"list", resource.plural}, std::move(*request), stop);
}

Result<std::string> Client::create(const Resource& resource, const std::string& ns,
                                   const std::string& body, const WriteOptions& options,
                                   const std::stop_token& stop) {
  Query query(path_of(resource, ns, {}, options.subresource));
  add_write(query, options, options_.field_manager);
  auto request = prepare("POST", query.take(), body, kJsonType);
  if (!request) return std::unexpected(request.error());
  return call({"create", resource.plural}, std::move(*request), stop);
}

Result<std::string> Client::update(const Resource& resource, const std::string& ns,
                                   const std::string& name, const std::string& body,
                                   const WriteOptions& options, const std::stop_token& stop) {
  Query query(path_of(resource, ns, name, options.subresource));
  add_write(query, options, options_.field_manager);
  auto request = prepare("PUT", query.take(), body, kJsonType);
  if (!request) return std::unexpected(request.error());
  return call({"update", resource.plural}, std::move(*request), stop);
}

Result<std::string> Client::patch(const Resource& resource, const std::string& ns,
                                  const std::string& name, const std::string& body,
                                  const PatchOptions& options, const std::stop_token& stop) {
  Query query(path_of(resource, ns, name, options.subresource));
  add_write(query, options, options_.field_manager);
  const bool apply = options.type == PatchType::kApply;
  if (apply && options.force) query.add("force", "true");
  auto request = prepare("PATCH", query.take(), body,
                         apply ? "application/apply-patch+yaml" : "application/merge-patch+json");
  if (!request) return std::unexpected(request.error());
  return call({"patch", resource.plural}, std::move(*request), stop);
}

Result<std::string> Client::remove(const Resource& resource, const std::string& ns,
                                   const std::string& name, const DeleteOptions& options,
                                   const std::stop_token& stop) {
  auto request = prepare("DELETE", path_of(resource, ns, name), delete_body(options), kJsonType);
  if (!request) return std::unexpected(request.error());
  return call({"delete", resource.plural}, std::move(*request), stop);
}

Status Client::watch(const Resource& resource, const std::string& ns, const WatchOptions& options,
                     const WatchHandler& handler, const std::stop_token& stop) {
  Query query(path_of(resource, ns));
  query.add("watch", "true")
      .add("allowWatchBookmarks", "true")
      .add("resourceVersion", options.resource_version);
  if (options.initial_events)
    query.add("sendInitialEvents", "true").add("resourceVersionMatch", "NotOlderThan");
  query.add("labelSelector", options.label_selector).add("fieldSelector", options.field_selector);
  query.add("timeoutSeconds", std::to_string(options.timeout.count()));
  auto request = prepare("GET", query.take(), {}, {});
  if (!request) return std::unexpected(request.error());
  // The server ends a quiet watch at its time-out. If it stays silent longer, the connection is
  // dead.
  request->timeout = options.timeout + milliseconds(30000);
  FrameDecoder decoder(options_.max_event_bytes);
  std::optional<Error> broken;
  for (int repeated = 0;;) {
    const auto response = streams_->stream(
        *request,
        [&](std::string_view chunk) {
          auto more = decoder.feed(chunk, handler);
          if (!more) broken = more.error();
          return more && *more;
        },
        stop);
    tell({"watch", resource.plural}, response);
    if (broken) return std::unexpected(std::move(*broken));
    if (!response) return std::unexpected(response.error());
    if (response->status < 300) return {};
    if (waited_as_told(*request, *response, repeated, stop)) continue;
    if (response->status == 401 && tokens_) tokens_->refused();
    return std::unexpected(error_of(response->status, response->body, describe(*request)));
  }
}

Result<std::string> Client::get_raw(const std::string& path, const std::stop_token& stop) {
  auto request = prepare("GET", path, {}, {});
  if (!request) return std::unexpected(request.error());
  return call({"get", ""}, std::move(*request), stop);
}

}  // namespace paceline::kube
