// SPDX-License-Identifier: Apache-2.0
// Makes a Client for a real API server, with transports and a token source of its own. Every
// program that talks to Kubernetes starts here.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "common/kube/client/client.hpp"
#include "common/kube/connect/config.hpp"

namespace paceline::kube {

struct ConnectOptions {
  std::size_t max_connections = 64;
  // Use cpprestsdk for unary calls if it is built in. Watches always use Beast.
  bool prefer_cpprest = true;
  ClientOptions client{};
};

Result<std::shared_ptr<Api>> make_client(const Config& config, const Clock& clock,
                                         ConnectOptions options = {});
/// A client of the server that load_default finds: a named kubeconfig, $KUBECONFIG, or the pod's
/// service account.
Result<std::shared_ptr<Api>> connect(const std::string& kubeconfig, const Clock& clock,
                                     ConnectOptions options = {});

}  // namespace paceline::kube
