// SPDX-License-Identifier: Apache-2.0
// Measurements as the agents' TLS API offers them, to those who may `create` the `links` of this
// node's NodeFabric (handler.hpp has asked):
//   POST /v1/links {"peer": NODE}    measures the way to that node and answers what link.hpp tells;
//   kept in the book POST /v1/links/tickets           what another agent asks before: a ticket,
//   good once, for 5 s, and the port that takes it
// The peer's agent is found by the address in its NodeFabric, which only that node's agent can
// write, and must show a certificate that the agents' CA signed before it is shown our token; the
// measurement itself goes to the same address.
//
// Borrows what it is given. Thread-safe; `measure` blocks for up to about ten seconds. Every
// failure is an answer that says why, and when to come again.
#pragma once

#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "agent/links/link_store.hpp"
#include "agent/links/rate_limiter.hpp"
#include "agent/links/responder.hpp"
#include "common/http/transport.hpp"
#include "common/kube/api/api.hpp"

namespace paceline::agent {

struct LinkServiceOptions {
  std::string node_name;
  /// Of the agents' own audience; read for each measurement, since the kubelet renews it.
  std::string token_file;
  /// Signs the agents' certificates; empty: the system's roots.
  std::string ca_file;
  /// What their certificates are issued for; empty: each for its address.
  std::string server_name;
  ResponderOptions responder;
  std::chrono::milliseconds time = kMaxLinkTime;
};

class LinkService {
 public:
  using Reach = std::function<std::shared_ptr<http::HttpTransport>(http::Endpoint)>;

  LinkService(kube::Api& api, const Clock& clock, LinkStore& book, Reach reach,
              LinkServiceOptions options, RateLimits limits = {});

  http::Response measure(const std::string& body, const std::stop_token& stop);
  /// `asker`: whom the API server says the token to be of.
  http::Response ticket(const std::string& asker);

 private:
  Result<http::Endpoint> find(const std::string& peer, const std::stop_token& stop);

  kube::Api& api_;
  const Clock& clock_;
  LinkStore& book_;
  const Reach reach_;
  const LinkServiceOptions options_;
  RateLimiter limiter_;
  Responder responder_;
};

/// The first line of a file with a token; kInvalid names the file.
Result<std::string> read_token(const std::string& file);

}  // namespace paceline::agent
