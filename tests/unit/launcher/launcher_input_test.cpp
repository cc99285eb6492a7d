// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <elf.h>
#include <sys/socket.h>

#include <cerrno>
#include <fstream>

#include "launcher/rendezvous/frame.hpp"
#include "tests/unit/launcher/launcher_process.hpp"

namespace paceline::launcher {
namespace {

TEST_F(LauncherProcess, AWrongTokenIsRefusedAndTheGangWaitsOn) {
  launch(0, "exit 0");
  launch(1, "exit 0", {{"PACELINE_TOKEN", "guess"}});
  EXPECT_EQ(wait(1), contract::kExitBadContract) << log(1);
  EXPECT_EQ(message(1)["verdict"], "BadContract");
  EXPECT_NE(message(1)["message"].get<std::string>().find("token"), std::string::npos);
  launch(1, "exit 0");
  EXPECT_EQ(wait(1), contract::kExitOk) << log(1);
  EXPECT_EQ(wait(0), contract::kExitOk) << log(0);
}

TEST_F(LauncherProcess, ItsSummaryIsToldToWhoMayExecInItsContainer) {
  nodes = 1;
  const net::HeldPort http("127.0.0.1");
  // The environment of the container is the launcher's, which has the token.
  const std::string ask = kLauncher + " summary";
  launch(0,
         "PACELINE_TOKEN=secret " + ask + " > $DIR/summary; PACELINE_TOKEN=guess " + ask +
             " 2> $DIR/refused; exit 0",
         {{"PACELINE_HTTP_LISTEN", "[::]:" + std::to_string(http.port())},
          {"PACELINE_PROCESSES_PER_REPLICA", "1"}});
  EXPECT_EQ(wait(0), contract::kExitOk) << log(0);
  const auto summary = nlohmann::json::parse(slurp(dir / "summary"), nullptr, false);
  ASSERT_TRUE(summary.is_object()) << slurp(dir / "summary");
  EXPECT_EQ(summary["jobUid"], "uid");
  EXPECT_NE(slurp(dir / "refused").find("status 401"), std::string::npos);
}

TEST_F(LauncherProcess, AGangThatNeverGathersTimesOut) {
  launch(0, "exit 0", {{"PACELINE_STARTUP_TIMEOUT", "1s"}});
  EXPECT_EQ(wait(0), contract::kExitRendezvous) << log(0);
  EXPECT_EQ(message(0)["verdict"], "RendezvousTimeout");
}

TEST_F(LauncherProcess, HostileBytesOnTheRendezvousPortDisturbNobody) {
  launch(0, "exit 0", {{"PACELINE_STARTUP_TIMEOUT", "300s"}});
  const auto send = [&](const std::string& bytes) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in peer{};
    peer.sin_family = AF_INET;
    peer.sin_port = htons(port);
    peer.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_TRUE(eventually(
        [&] { return ::connect(fd, reinterpret_cast<const sockaddr*>(&peer), sizeof peer) == 0; }));
    [[maybe_unused]] const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    timeval limit{60, 0};
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    char byte = 0;
    ssize_t got = 0;
    // A refusal may be sent before the close.
    while ((got = ::recv(fd, &byte, 1, 0)) == 1) continue;
    const bool closed = got == 0 || errno == ECONNRESET;
    ::close(fd);
    return closed;
  };
  using rendezvous::encode_frame;
  EXPECT_TRUE(send("GET / HTTP/1.1\r\n\r\n"));
  EXPECT_TRUE(send("\xff\xff\xff\xff"));
  EXPECT_TRUE(send(std::string(4, '\0')));
  EXPECT_TRUE(send(encode_frame("not json")));
  EXPECT_TRUE(send(encode_frame(std::string(10'000, '['))));
  EXPECT_TRUE(send(encode_frame(R"({"type":"done","attempt":0})")));
  EXPECT_TRUE(send(encode_frame(R"({"type":"hello","protocol":1})")));
  EXPECT_TRUE(send(std::string(2, '\0'))) << "a peer that never finishes is closed after 5 s";
  launch(1, "exit 0");
  EXPECT_EQ(wait(0), contract::kExitOk) << log(0);
  EXPECT_EQ(wait(1), contract::kExitOk) << log(1);
}

TEST_F(LauncherProcess, WhatCannotBeStartedIsSaidAndNotTriedAgain) {
  nodes = 1;
  launch(0, "exit 0", {{"PATH", "/nowhere"}});
  EXPECT_EQ(wait(0), contract::kExitJobFailed) << log(0);
  EXPECT_EQ(message(0)["culprit"]["class"], "NotExecutable");
  EXPECT_EQ(message(0)["restarts"], 0);
  EXPECT_NE(message(0)["message"].get<std::string>().find("cannot start \"sh\""),
            std::string::npos);
}

TEST_F(LauncherProcess, ABadEnvironmentIsSaidInTheTerminationMessage) {
  launch(0, "exit 0", {{"PACELINE_NODE_COUNT", "many"}});
  EXPECT_EQ(wait(0), contract::kExitBadContract);
  EXPECT_NE(message(0)["message"].get<std::string>().find("PACELINE_NODE_COUNT=many"),
            std::string::npos);
}

TEST_F(LauncherProcess, AContradictingShellScriptIsRefused) {
  launch(0, "torchrun --nnodes=9 train.py");
  EXPECT_EQ(wait(0), contract::kExitBadContract);
  EXPECT_NE(message(0)["message"].get<std::string>().find("torchrun"), std::string::npos);
}

TEST(LauncherProgram, NeedsNothingOfTheImageItStartsIn) {
#ifdef PACELINE_SANITIZED
  GTEST_SKIP() << "sanitizers cannot be linked statically";
#endif
  std::ifstream file(kLauncher, std::ios::binary);
  Elf64_Ehdr header{};
  file.read(reinterpret_cast<char*>(&header), sizeof header);
  ASSERT_TRUE(file.good());
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment{};
    file.seekg(
        static_cast<std::streamoff>(header.e_phoff + static_cast<std::size_t>(i) * sizeof segment));
    file.read(reinterpret_cast<char*>(&segment), sizeof segment);
    EXPECT_NE(segment.p_type, static_cast<Elf64_Word>(PT_INTERP))
        << "it would need a dynamic loader";
    EXPECT_NE(segment.p_type, static_cast<Elf64_Word>(PT_DYNAMIC));
  }
}

}  // namespace
}  // namespace paceline::launcher
