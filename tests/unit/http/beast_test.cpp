// SPDX-License-Identifier: Apache-2.0
// The Beast transport against Paceline's own server, through real sockets.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include "common/base/unique_fd.hpp"
#include "common/http/beast/transport.hpp"
#include "common/http/server/server.hpp"
#include "common/net/ports.hpp"
#include "tests/unit/launcher/program.hpp"

namespace paceline::http {
namespace {

using namespace std::chrono_literals;

std::unique_ptr<Server> serve(ServerHandler handler, ServerOptions options = {}) {
  auto server = Server::start(std::move(options), std::move(handler));
  EXPECT_TRUE(server) << to_string(server.error());
  return std::move(*server);
}

std::shared_ptr<HttpTransport> client_of(const Server& server, BeastOptions options = {}) {
  Endpoint endpoint;
  endpoint.host = "127.0.0.1";
  endpoint.port = std::to_string(server.port());
  return make_beast_transport(endpoint, options);
}

Request request_of(std::string method, std::string target, std::string body = {},
                   std::chrono::milliseconds timeout = 30s) {
  Request request;
  request.method = std::move(method);
  request.target = std::move(target);
  request.body = std::move(body);
  request.timeout = timeout;
  return request;
}

TEST(Beast, SendsMethodTargetHeadersAndBody) {
  const auto server = serve([](const Request& request, ResponseWriter& writer) {
    writer.respond({201, {{"X-Target", request.target}}, request.method + ":" + request.body});
  });
  const auto response = client_of(*server)->send(request_of("PATCH", "/a?b=c", "body"), {});
  ASSERT_TRUE(response) << to_string(response.error());
  EXPECT_EQ(response->status, 201);
  EXPECT_EQ(response->body, "PATCH:body");
  EXPECT_EQ(response->header("x-target"), "/a?b=c");
}

TEST(Beast, LargerAnswerThanAllowedIsAnErrorNotMemory) {
  const auto server = serve([](const Request&, ResponseWriter& writer) {
    writer.respond({200, {}, std::string(2'000'000, 'x')});
  });
  const auto refused =
      client_of(*server, {.max_body_bytes = 1'000'000})->send(request_of("GET", "/"), {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kExhausted);
  EXPECT_TRUE(client_of(*server, {.max_body_bytes = 2'000'000})->send(request_of("GET", "/"), {}));
}

TEST(Beast, SilentServerTimesOut) {
  const auto server = serve([](const Request&, ResponseWriter& writer) {
    while (!writer.stop().stop_requested()) std::this_thread::sleep_for(10ms);
  });
  const auto answer = client_of(*server)->send(request_of("GET", "/", {}, 200ms), {});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Code::kTimeout);
  EXPECT_TRUE(answer.error().retry);
}

/// The kernel's timer of this process's IPv4 connection to a port, as /proc/net/tcp codes it: 2 is
/// keepalive. -1 if there is no such connection.
int timer_of_connection_to(int port) {
  std::ifstream table("/proc/self/net/tcp");
  std::string line;
  std::getline(table, line);  // the header
  while (std::getline(table, line)) {
    std::istringstream row(line);
    std::string number, local, remote, state, queues, timer;
    row >> number >> local >> remote >> state >> queues >> timer;
    const bool established = state == "01";
    if (established && std::stoi(remote.substr(remote.find(':') + 1), nullptr, 16) == port)
      return std::stoi(timer, nullptr, 16);
  }
  return -1;
}

TEST(Beast, AConnectionThatIsSilentIsProbed) {
  const auto server =
      serve([](const Request&, ResponseWriter& writer) { writer.respond({200, {}, "kept open"}); });
  const auto client = client_of(*server);
  ASSERT_TRUE(client->send(request_of("GET", "/"), {}));
  EXPECT_EQ(timer_of_connection_to(server->port()), 2);
}

TEST(Beast, StopCancelsACallUnderWay) {
  const auto server = serve([](const Request&, ResponseWriter& writer) {
    while (!writer.stop().stop_requested()) std::this_thread::sleep_for(10ms);
  });
  std::stop_source stop;
  const std::jthread later([&] {
    std::this_thread::sleep_for(100ms);
    stop.request_stop();
  });
  const auto answer = client_of(*server)->send(request_of("GET", "/", {}, 30s), stop.get_token());
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Code::kCancelled);
}

TEST(Beast, NobodyListeningIsUnavailableAndNamed) {
  Endpoint endpoint;
  endpoint.host = "127.0.0.1";
  endpoint.port = "1";
  const auto answer = make_beast_transport(endpoint)->send(request_of("GET", "/x"), {});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Code::kUnavailable);
  EXPECT_NE(answer.error().message.find("127.0.0.1:1"), std::string::npos)
      << answer.error().message;
}

TEST(Beast, ConnectionCutWithoutAnAnswerIsUnavailable) {
  std::atomic<int> calls{0};
  const auto server = serve([&](const Request&, ResponseWriter& writer) {
    ++calls;
    writer.abort();
  });
  const auto answer = client_of(*server)->send(request_of("POST", "/", "{}"), {});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Code::kUnavailable);
  EXPECT_EQ(calls, 1) << "a write is never sent twice by the transport";
}

TEST(Beast, KeptConnectionThatTheServerClosedIsReplaced) {
  const net::HeldPort port("127.0.0.1");
  std::shared_ptr<HttpTransport> client;
  for (int i = 0; i < 3; ++i) {
    auto server =
        serve([](const Request&, ResponseWriter& writer) { writer.respond({200, {}, "ok"}); },
              {.port = port.port()});
    if (!client) client = client_of(*server);
    const auto answer = client->send(request_of("POST", "/", "{}"), {});
    ASSERT_TRUE(answer) << to_string(answer.error());
    ASSERT_NE(timer_of_connection_to(port.port()), -1) << "it is kept";
    server.reset();  // with a time-out it could also close while the client sends
    ASSERT_TRUE(test::eventually([&] { return timer_of_connection_to(port.port()) == -1; }));
  }
}

TEST(Beast, CallersBeyondTheConnectionsWaitTheirTurn) {
  std::atomic<int> now{0};
  std::atomic<int> most{0};
  const auto server = serve([&](const Request&, ResponseWriter& writer) {
    most = std::max(most.load(), ++now);
    std::this_thread::sleep_for(30ms);
    --now;
    writer.respond({200, {}, "ok"});
  });
  const auto client = client_of(*server, {.max_connections = 2});
  std::atomic<int> good{0};
  {
    std::vector<std::jthread> callers;
    for (int i = 0; i < 8; ++i) {
      callers.emplace_back([&] { good += client->send(request_of("GET", "/"), {}) ? 1 : 0; });
    }
  }
  EXPECT_EQ(good, 8);
  EXPECT_LE(most, 2);
}

TEST(Beast, StreamArrivesAsItIsWritten) {
  const auto server = serve([](const Request&, ResponseWriter& writer) {
    ASSERT_TRUE(writer.begin_stream(200, {}));
    for (int i = 0; i < 3; ++i) {
      writer.write("line " + std::to_string(i) + "\n");
      std::this_thread::sleep_for(50ms);
    }
  });
  std::string all;
  int chunks = 0;
  const auto answer = client_of(*server)->stream(request_of("GET", "/"),
                                                 [&](std::string_view chunk) {
                                                   all += chunk;
                                                   ++chunks;
                                                   return true;
                                                 },
                                                 {});
  ASSERT_TRUE(answer) << to_string(answer.error());
  EXPECT_EQ(all, "line 0\nline 1\nline 2\n");
  EXPECT_GE(chunks, 2);
}

TEST(Beast, ReaderThatStopsStopsTheSender) {
  std::atomic<std::size_t> written{0};
  const std::string block(64 * 1024, 'x');
  const auto server = serve([&](const Request&, ResponseWriter& writer) {
    writer.begin_stream(200, {});
    while (written < 512U * 1024 * 1024 && writer.write(block)) written += block.size();
  });
  std::size_t first_look = 0;
  std::size_t second_look = 0;
  const auto answer =
      client_of(*server)->stream(request_of("GET", "/"),
                                 [&](std::string_view) {
                                   // While the handler holds on, only socket buffers fill. How long
                                   // that takes depends on how busy the machine is.
                                   const auto end = std::chrono::steady_clock::now() + 30s;
                                   do {
                                     first_look = written;
                                     std::this_thread::sleep_for(500ms);
                                     second_look = written;
                                   } while ((first_look == 0 || first_look != second_look) &&
                                            std::chrono::steady_clock::now() < end);
                                   return false;
                                 },
                                 {});
  ASSERT_TRUE(answer) << to_string(answer.error());
  EXPECT_GT(first_look, 0U);
  EXPECT_EQ(first_look, second_look);
  EXPECT_LT(second_look, 64U * 1024 * 1024);
}

TEST(Beast, RefusedStreamBringsItsBody) {
  const auto server =
      serve([](const Request&, ResponseWriter& writer) { writer.respond({410, {}, "gone"}); });
  const auto answer =
      client_of(*server)->stream(request_of("GET", "/"), [](std::string_view) { return true; }, {});
  ASSERT_TRUE(answer) << to_string(answer.error());
  EXPECT_EQ(answer->status, 410);
  EXPECT_EQ(answer->body, "gone");
}

TEST(Server, AnswersTooLargeRequestsAndGoesOn) {
  const auto server =
      serve([](const Request&, ResponseWriter& writer) { writer.respond({200, {}, "ok"}); },
            {.max_body_bytes = 1000});
  const auto client = client_of(*server);
  const auto large = client->send(request_of("POST", "/", std::string(5000, 'x')), {});
  if (large) {
    // or the server closed the connection while the client still wrote
    EXPECT_EQ(large->status, 413);
  }
  EXPECT_TRUE(client->send(request_of("GET", "/"), {}));
}

TEST(Server, ClosesAConnectionThatIsSilent) {
  const auto server = serve([](const Request&, ResponseWriter&) {}, {.idle_timeout = 100ms});
  const UniqueFd peer(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(server->port());
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::connect(peer.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  const timeval limit{30, 0};
  ::setsockopt(peer.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  char byte = 0;
  EXPECT_EQ(::recv(peer.get(), &byte, 1, 0), 0);
}

TEST(Server, RefusesAnAddressThatIsTaken) {
  const auto server = serve([](const Request&, ResponseWriter&) {});
  const auto second =
      Server::start({.port = server->port()}, [](const Request&, ResponseWriter&) {});
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().message.find(std::to_string(server->port())), std::string::npos)
      << second.error().message;
}

}  // namespace
}  // namespace paceline::http
