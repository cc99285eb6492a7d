// SPDX-License-Identifier: Apache-2.0
// Client: kube::Api over HttpTransport. Unary verbs use one transport and watches another, so that
// neither can use up the other's connections.
//
// Ownership: shares its transports and token source. Thread-safe. The server sets the pace; the
// client imposes no fixed rate. A call or watch refused with 429, and a GET refused with 503 and
// Retry-After, is repeated after the time that the server names (bounded). See api.hpp for
// failures.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "common/http/transport.hpp"
#include "common/kube/api/api.hpp"
#include "common/kube/client/token_source.hpp"

namespace paceline::kube {

/// What a request asks of the API server, as audit logs name it.
struct CallName {
  std::string_view verb;      // get, list, watch, create, update, patch, delete
  std::string_view resource;  // "pods"; empty: a path that is no resource's
};

struct ClientOptions {
  std::string user_agent = "paceline";
  std::string field_manager = "paceline";
  std::string prefix{};
  std::chrono::milliseconds timeout{30000};
  // how often a call is repeated after the server asked to wait
  int throttle_retries = 4;
  // of one watch event; a larger one ends the watch with kExhausted
  std::size_t max_event_bytes = 8 * 1024 * 1024;
  std::chrono::milliseconds max_retry_after{30000};
  // Told the status of every answer, also where the call is then repeated; 0: no answer came. A
  // watch is told of when it ends. Several threads call it at once.
  std::function<void(const CallName& call, int status)> answered{};
};

class Client final : public Api {
 public:
  Client(std::shared_ptr<http::HttpTransport> unary, std::shared_ptr<http::HttpTransport> streams,
         std::shared_ptr<TokenSource> tokens, ClientOptions options = {});

  Result<std::string> get(const Resource& resource, const std::string& ns, const std::string& name,
                          const std::stop_token& stop = {}) override;
  Result<std::string> list(const Resource& resource, const std::string& ns,
                           const ListOptions& options, const std::stop_token& stop = {}) override;
  Result<std::string> create(const Resource& resource, const std::string& ns,
                             const std::string& body, const WriteOptions& options = {},
                             const std::stop_token& stop = {}) override;
  Result<std::string> update(const Resource& resource, const std::string& ns,
                             const std::string& name, const std::string& body,
                             const WriteOptions& options = {},
                             const std::stop_token& stop = {}) override;
  Result<std::string> patch(const Resource& resource, const std::string& ns,
                            const std::string& name, const std::string& body,
                            const PatchOptions& options = {},
                            const std::stop_token& stop = {}) override;
  Result<std::string> remove(const Resource& resource, const std::string& ns,
                             const std::string& name, const DeleteOptions& options = {},
                             const std::stop_token& stop = {}) override;
  Status watch(const Resource& resource, const std::string& ns, const WatchOptions& options,
               const WatchHandler& handler, const std::stop_token& stop = {}) override;
  Result<std::string> get_raw(const std::string& path, const std::stop_token& stop = {}) override;

 private:
  Result<std::string> call(const CallName& name, http::Request request,
                           const std::stop_token& stop);
  void tell(const CallName& name, const Result<http::Response>& response) const;
  /// True if the server asked to wait and that time has passed. `repeated` counts the repeats of
  /// one call.
  bool waited_as_told(const http::Request& request, const http::Response& response, int& repeated,
                      const std::stop_token& stop) const;
  Result<http::Request> prepare(std::string method, std::string target, std::string body,
                                std::string_view content_type);

  std::shared_ptr<http::HttpTransport> unary_;
  std::shared_ptr<http::HttpTransport> streams_;
  std::shared_ptr<TokenSource> tokens_;
  const ClientOptions options_;
};

}  // namespace paceline::kube
