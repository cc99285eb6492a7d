// SPDX-License-Identifier: Apache-2.0
// The measurement API of an agent, served over TLS. handler.hpp has checked that the caller may
// `create` the `links` of this node's NodeFabric:
//
//   POST /v1/links {"peer": NODE}   measures the network to that node, answers as link.hpp
//                                   describes, and stores the link.
//   POST /v1/links/tickets          called by another agent before it measures: returns a ticket,
//                                   valid for 5 s, and the port that accepts it
//
// The peer's agent is found by the address in its NodeFabric, which only that node's agent can
// write. Before the token is sent to it, it must show a certificate signed by the agents' CA. The
// measurement goes to the same address.
//
// Borrows its arguments. Thread-safe; `measure` blocks for up to about ten seconds. Every failure
// is a response that says why, and when to retry.
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
  /// A token for the agents' audience. Read for each measurement, because the kubelet renews it.
  std::string token_file;
  /// Certificates that sign the agents' certificates; empty: the system's roots.
  std::string ca_file;
  /// The name in their certificates; empty: each for its address.
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
  /// `asker` is the token's user, as the API server says.
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

}  // namespace paceline::agent
