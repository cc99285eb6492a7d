// SPDX-License-Identifier: Apache-2.0
// cpprestsdk ends the process for an error that nobody looked at, so giving up a call must leave none behind.
#include <gtest/gtest.h>

#include <chrono>
#include <stop_token>
#include <thread>

#include "common/http/cpprest/transport.hpp"
#include "common/http/server/server.hpp"

namespace paceline::http {
namespace {

using namespace std::chrono_literals;

TEST(Cpprest, GivingUpACallLeavesTheProcessAlive) {
  const auto server = Server::start({}, [](const Request&, ResponseWriter& writer) {
    for (int i = 0; i < 500 && !writer.stop().stop_requested(); ++i) std::this_thread::sleep_for(10ms);
  });
  ASSERT_TRUE(server);
  Endpoint endpoint;
  endpoint.host = "127.0.0.1";
  endpoint.port = std::to_string((*server)->port());
  const auto transport = make_cpprest_transport(endpoint);
  Request request;
  request.target = "/";
  request.timeout = 30s;
  for (int i = 0; i < 5; ++i) {
    std::stop_source stop;
    const std::jthread later([&] {
      std::this_thread::sleep_for(50ms);
      stop.request_stop();
    });
    const auto answer = transport->send(request, stop.get_token());
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().code, Code::kCancelled);
  }
  std::this_thread::sleep_for(300ms);  // the library tells of the cancellation from its own threads
}

}  // namespace
}  // namespace paceline::http
