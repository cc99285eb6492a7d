// SPDX-License-Identifier: Apache-2.0
// FakeServer: a FakeCluster behind a real HTTP socket on 127.0.0.1, so that transports, watches and
// reconnects are those of production. The cluster must outlive it. Its destructor stops and joins
// its threads.
#pragma once

#include <cstdint>
#include <memory>

#include "common/kube/fake/cluster.hpp"

namespace paceline::http {
class Server;
}

namespace paceline::kube {

class FakeServer {
 public:
  static Result<std::unique_ptr<FakeServer>> start(FakeCluster& cluster, std::uint16_t port = 0);
  ~FakeServer();
  std::uint16_t port() const;

 private:
  explicit FakeServer(std::unique_ptr<http::Server> server);
  std::unique_ptr<http::Server> server_;
};

}  // namespace paceline::kube
