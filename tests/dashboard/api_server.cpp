// SPDX-License-Identifier: Apache-2.0
// An empty Kubernetes API server in memory, for a test that runs the real operator. It prints its
// port and serves 127.0.0.1 until its input ends. usage: paceline_test_api_server
#include <cstdio>

#include "common/base/clock.hpp"
#include "common/kube/fake/server.hpp"

int main() {
  const paceline::SystemClock clock;
  paceline::kube::FakeCluster cluster(clock);
  const auto server = paceline::kube::FakeServer::start(cluster);
  if (!server) {
    std::fprintf(stderr, "%s\n", paceline::to_string(server.error()).c_str());
    return 1;
  }
  std::printf("%u\n", static_cast<unsigned>((*server)->port()));
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  return 0;
}
