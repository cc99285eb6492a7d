// SPDX-License-Identifier: Apache-2.0
// cpprestsdk ends the process if an error was never observed. A cancelled call must therefore leave
// no such error.
#include <gtest/gtest.h>

#include <chrono>
#include <stop_token>
#include <thread>

#include "common/http/cpprest/transport.hpp"
#include "common/http/server/server.hpp"

namespace paceline::http {
namespace {

using namespace std::chrono_literals;

Endpoint endpoint_of(const Server& server) {
  Endpoint endpoint;
  endpoint.host = "127.0.0.1";
  endpoint.port = std::to_string(server.port());
  return endpoint;
}

TEST(Cpprest, LargerAnswerThanAllowedIsAnErrorNotMemory) {
  const auto server = Server::start({}, [](const Request&, ResponseWriter& writer) {
    writer.respond({200, {}, std::string(2'000'000, 'x')});
  });
  ASSERT_TRUE(server);
  Request request;
  request.target = "/";
  CpprestOptions options;
  options.max_body_bytes = 1'000'000;
  const auto refused = make_cpprest_transport(endpoint_of(**server), options)->send(request, {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kExhausted);
  EXPECT_NE(refused.error().message.find("larger than 1000000 bytes"), std::string::npos)
      << to_string(refused.error());
  options.max_body_bytes = 2'000'000;
  const auto taken = make_cpprest_transport(endpoint_of(**server), options)->send(request, {});
  ASSERT_TRUE(taken) << to_string(taken.error());
  EXPECT_EQ(taken->body.size(), 2'000'000U);
}

TEST(Cpprest, GivingUpACallLeavesTheProcessAlive) {
  const auto server = Server::start({}, [](const Request&, ResponseWriter& writer) {
    while (!writer.stop().stop_requested()) std::this_thread::sleep_for(10ms);
  });
  ASSERT_TRUE(server);
  const auto transport = make_cpprest_transport(endpoint_of(**server));
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
  std::this_thread::sleep_for(300ms);  // cpprestsdk reports the cancellation on its own threads
}

}  // namespace
}  // namespace paceline::http
