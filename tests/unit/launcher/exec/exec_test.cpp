// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <thread>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/write.hpp>

#include "launcher/exec/exec_message.hpp"
#include "launcher/exec/exec_server.hpp"
#include "launcher/exec/mpi_agent.hpp"
#include "launcher/rendezvous/frame.hpp"

namespace paceline::exec {
namespace {

using boost::asio::ip::tcp;

TEST(ExecMessage, RoundTrips) {
  const auto request = parse_request(to_json(ExecRequest{"secret", "uid", 7}));
  ASSERT_TRUE(request);
  EXPECT_EQ(request->attempt, 7);
  const auto hosts =
      parse_hosts(to_json(ExecHosts{{"secret", "uid", 7}, {{"worker-0", {"::1", 80}}}}));
  ASSERT_TRUE(hosts);
  EXPECT_EQ(hosts->hosts.at("worker-0").host, "::1");
  const auto exit = parse_answer(encode_exit(137));
  ASSERT_TRUE(exit);
  EXPECT_EQ(exit->code, 137);
}

TEST(ExecMessage, RefusesOtherBytes) {
  for (const char* text : {"", "[]", "{", R"({"token":1})"}) EXPECT_FALSE(parse_request(text));
  for (const char* text : {"", "x", "x256", "x-1", "?a"}) EXPECT_FALSE(parse_answer(text));
}

TEST(MpiAgent, SkipsOptionsOfSsh) {
  const auto call = parse_agent_call(
      {"--hosts", "file", "-x", "-l", "me", "worker-1", "orted", "-mca", "ess", "\"env\""});
  ASSERT_TRUE(call);
  EXPECT_EQ(call->host, "worker-1");
  EXPECT_EQ(call->command, "orted -mca ess \"env\"");
  EXPECT_FALSE(parse_agent_call({"worker-1", "orted"}));
  EXPECT_FALSE(parse_agent_call({"--hosts", "file", "worker-1"}));
}

struct ExecServerTest : ::testing::Test {
  ExecServerTest() { port = server.open("127.0.0.1"); }
  ~ExecServerTest() override { server.close(); }

  tcp::socket ask(const std::string& token, int attempt, const std::string& command) {
    tcp::socket socket(io);
    socket.connect({boost::asio::ip::make_address("127.0.0.1"), port});
    const std::string frames =
        rendezvous::encode_frame(to_json(ExecRequest{token, "uid", attempt})) +
        rendezvous::encode_frame(command);
    boost::asio::write(socket, boost::asio::buffer(frames));
    return socket;
  }

  /// All that the server answers until it closes the connection, or until the condition holds.
  std::string answers(tcp::socket& socket,
                      const std::function<bool(const std::string&)>& enough = {}) {
    std::string all;
    rendezvous::FrameDecoder decoder(rendezvous::kServerLimit);
    socket.non_blocking(true);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (std::chrono::steady_clock::now() < end && !(enough && enough(all))) {
      io.restart();
      io.run_for(std::chrono::milliseconds(20));
      server.tick(std::chrono::steady_clock::now());
      reap();
      char buffer[4096];
      boost::system::error_code error;
      const std::size_t size = socket.read_some(boost::asio::buffer(buffer), error);
      decoder.push({buffer, size});
      for (auto frame = decoder.next(); frame && *frame; frame = decoder.next())
        all += **frame + "|";
      if (error == boost::asio::error::eof) break;
    }
    return all;
  }

  void reap() {
    for (int status = 0; pid > 0 && ::waitpid(pid, &status, WNOHANG) == pid; pid = -1) {
      ended = status;
      server.on_exit(pid, status);
    }
  }

  process::SpawnRequest shell() {
    process::SpawnRequest request;
    request.argv = {"/bin/sh", "-c"};
    request.environment = {"PATH=/usr/bin:/bin", "WHERE=here"};
    return request;
  }

  boost::asio::io_context io{1};
  pid_t pid = -1;
  std::optional<int> ended;
  ExecServer server{io, "secret", "uid", std::chrono::seconds(5),
                    [this](pid_t started) { pid = started; }};
  std::uint16_t port = 0;
};

TEST_F(ExecServerTest, RunsACommandWithTheReplicasEnvironment) {
  server.begin(3, shell());
  auto socket = ask("secret", 3, "echo $WHERE; exit 5");
  EXPECT_EQ(answers(socket), "ohere\n|x5|");
}

TEST_F(ExecServerTest, AWrongTokenRunsNothing) {
  server.begin(3, shell());
  auto socket = ask("guess", 3, "echo $WHERE");
  EXPECT_EQ(answers(socket), "");
  EXPECT_EQ(pid, -1);
}

TEST_F(ExecServerTest, AnEarlyCommandWaitsAndALateOneIsRefused) {
  auto early = ask("secret", 4, "exit 0");
  answers(early, [turns = 0](const std::string&) mutable { return ++turns > 3; });
  EXPECT_EQ(pid, -1);
  server.begin(4, shell());
  EXPECT_EQ(answers(early), "x0|");
  auto late = ask("secret", 3, "exit 0");
  EXPECT_EQ(answers(late), "e[paceline] attempt 3 is over\n|x255|");
  server.stop();
  auto stopped = ask("secret", 4, "exit 0");
  EXPECT_EQ(answers(stopped), "e[paceline] attempt 4 is over\n|x255|");
}

TEST_F(ExecServerTest, ALostConnectionEndsTheCommand) {
  server.begin(0, shell());
  // A program that has set its handler before it says so: an earlier SIGTERM would meet no program.
  auto socket =
      ask("secret", 0, "sh -c 'trap \"exit 7\" TERM; echo on; while true; do sleep 0.1; done'");
  answers(socket, [](const std::string& all) { return all.contains("on"); });
  socket.shutdown(tcp::socket::shutdown_both);
  socket.close();
  auto other = ask("secret", 9, "exit 0");
  answers(other, [&](const std::string&) { return ended.has_value(); });
  ASSERT_TRUE(ended);
  EXPECT_TRUE(WIFEXITED(*ended)) << "it was killed";
  EXPECT_EQ(WEXITSTATUS(*ended), 7);  // the program's, which its shell passes on
}

}  // namespace
}  // namespace paceline::exec
