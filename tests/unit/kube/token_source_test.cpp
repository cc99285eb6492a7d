// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "common/kube/client/client.hpp"
#include "common/kube/connect/config.hpp"
#include "common/kube/connect/run_plugin.hpp"

namespace paceline::kube {
namespace {

using namespace std::chrono_literals;

class Tokens : public testing::Test {
 protected:
  Tokens() : folder(testing::TempDir() + "tokens-" + std::to_string(::getpid()) + "/") {
    std::filesystem::create_directories(folder);
  }
  ~Tokens() override { std::filesystem::remove_all(folder); }
  void write(const std::string& name, const std::string& text) {
    std::ofstream(folder + name) << text;
  }
  ExecPlugin plugin(const std::string& script) {
    write("plugin", "#!/bin/sh\n" + script);
    ::chmod((folder + "plugin").c_str(), 0755);
    return {"client.authentication.k8s.io/v1", folder + "plugin", {}, {{"EXTRA", "set"}}};
  }
  std::string folder;
  ManualClock clock;
};

TEST_F(Tokens, FileIsReadAgainAfterARotation) {
  write("token", "one\n");
  Config config;
  config.token_file = folder + "token";
  const auto source = make_token_source(config, clock);
  EXPECT_EQ(*source->token(), "one");
  write("token", "two\n");
  clock.advance(2s);
  EXPECT_EQ(*source->token(), "two");
  write("token", "");
  clock.advance(2s);
  EXPECT_EQ(*source->token(), "two") << "a rotation caught half-way";
}

TEST_F(Tokens, AbsentFileSaysWhich) {
  Config config;
  config.token_file = folder + "none";
  const auto token = make_token_source(config, clock)->token();
  ASSERT_FALSE(token);
  EXPECT_NE(token.error().message.find("none"), std::string::npos);
}

TEST_F(Tokens, PluginRunsAgainOnlyBeforeItsTokenExpires) {
  const std::string counter = folder + "runs";
  Config config;
  config.exec = plugin("echo x >> " + counter + "\nn=$(wc -l < " + counter + R"()
printf '{"kind":"ExecCredential","status":{"token":"t%s-%s","expirationTimestamp":"2026-01-01T00:10:00Z"}}' $n $EXTRA
)");
  const auto source = make_token_source(config, clock);
  EXPECT_EQ(*source->token(), "t1-set");
  clock.advance(9min);
  EXPECT_EQ(*source->token(), "t1-set");
  clock.advance(45s);
  EXPECT_EQ(*source->token(), "t2-set");
  EXPECT_TRUE(source->refused());
  EXPECT_EQ(*source->token(), "t3-set");
}

TEST_F(Tokens, PluginsCertificateIsRenewedWithItsExpiry) {
  const std::string counter = folder + "runs";
  Config config;
  config.endpoint.renewable = std::make_shared<http::RenewableCertificate>();
  config.exec = plugin("echo x >> " + counter + "\nn=$(wc -l < " + counter + R"()
printf '{"status":{"clientCertificateData":"c%s","clientKeyData":"k%s","expirationTimestamp":"2026-01-01T00:10:00Z"}}' $n $n
)");
  const auto source = make_token_source(config, clock);
  EXPECT_EQ(config.endpoint.renewable->current().generation, 0U);
  EXPECT_EQ(source->token().value(), "") << "no header is sent";
  const auto first = config.endpoint.renewable->current();
  EXPECT_EQ(first.certificate + first.key, "c1k1");
  clock.advance(9min);
  EXPECT_TRUE(source->token());
  EXPECT_EQ(config.endpoint.renewable->current().generation, first.generation);
  clock.advance(45s);
  EXPECT_TRUE(source->token());
  EXPECT_EQ(config.endpoint.renewable->current().key, "k2");
  EXPECT_TRUE(source->refused());
  EXPECT_TRUE(source->token());
  EXPECT_EQ(config.endpoint.renewable->current().key, "k3");
}

TEST_F(Tokens, PluginsHalfACertificateIsRefused) {
  Config config;
  config.exec = plugin(R"(echo '{"status":{"token":"t","clientCertificateData":"c"}}')");
  const auto token = make_token_source(config, clock)->token();
  ASSERT_FALSE(token);
  EXPECT_NE(token.error().message.find("clientKeyData"), std::string::npos)
      << token.error().message;
}

TEST_F(Tokens, PluginThatFailsOrHangsOrIsAbsentIsNamed) {
  const auto failed = run_plugin(plugin("exit 3"), 60s);
  ASSERT_FALSE(failed);
  EXPECT_NE(failed.error().message.find("exit code 3"), std::string::npos)
      << failed.error().message;
  const auto slow = run_plugin(plugin("exec sleep 30"), 100ms);
  ASSERT_FALSE(slow);
  EXPECT_EQ(slow.error().code, Code::kTimeout);
  const auto flood = run_plugin(plugin("exec yes"), 30s);
  ASSERT_FALSE(flood);
  EXPECT_EQ(flood.error().code, Code::kInvalid) << flood.error().message;
  const auto absent = run_plugin({"v1", "no-such-credential-plugin", {}, {}}, 1s);
  ASSERT_FALSE(absent);
  EXPECT_NE(absent.error().message.find("no-such-credential-plugin"), std::string::npos);
  Config config;
  config.exec = plugin("echo hello");
  EXPECT_EQ(make_token_source(config, clock)->token().error().code, Code::kUnauthorized);
}

/// Answers 401 to every token but one, and 429 as often as the test says.
class Gatekeeper final : public http::HttpTransport {
 public:
  Result<http::Response> send(const http::Request& request, const std::stop_token&) override {
    ++calls;
    if (throttle-- > 0) return busy;
    for (const auto& header : request.headers) {
      if (header.name == "Authorization" && header.value == "Bearer " + wanted)
        return http::Response{200, {}, "{}"};
    }
    return http::Response{401, {}, {}};
  }
  Result<http::Response> stream(const http::Request& request, const http::ChunkHandler&,
                                const std::stop_token& stop) override {
    return send(request, stop);
  }
  std::string wanted;
  int calls = 0;
  int throttle = 0;
  http::Response busy{429, {{"Retry-After", "0"}}, {}};
};

TEST_F(Tokens, ClientTakesANewTokenAfter401Once) {
  write("token", "old");
  Config config;
  config.token_file = folder + "token";
  const auto source = make_token_source(config, clock);
  const auto gate = std::make_shared<Gatekeeper>();
  gate->wanted = "new";
  Client client(gate, gate, source);
  EXPECT_EQ(client.get_raw("/version").error().code, Code::kUnauthorized);
  EXPECT_EQ(gate->calls, 1);
  write("token", "new");  // rotated, but the cached token is less than a second old
  const auto answer = client.get_raw("/version");
  EXPECT_TRUE(answer) << to_string(answer.error());
}

TEST_F(Tokens, ClientWaitsOut429AndGivesUpInTheEnd) {
  Config config;
  config.token = "t";
  const auto gate = std::make_shared<Gatekeeper>();
  gate->wanted = "t";
  gate->throttle = 3;
  ClientOptions options;
  options.throttle_retries = 4;
  Client client(gate, gate, make_token_source(config, clock), options);
  EXPECT_TRUE(client.get_raw("/version"));
  EXPECT_EQ(gate->calls, 4);
  gate->throttle = 100;
  gate->calls = 0;
  EXPECT_EQ(client.get_raw("/version").error().code, Code::kExhausted);
  EXPECT_EQ(gate->calls, 5);
}

TEST_F(Tokens, ClientRepeatsAfter503OnlyWhatWritesNothingAndWasToldWhen) {
  Config config;
  config.token = "t";
  const auto gate = std::make_shared<Gatekeeper>();
  gate->wanted = "t";
  gate->busy.status = 503;
  Client client(gate, gate, make_token_source(config, clock));
  const auto calls = [&](auto call) {
    gate->throttle = 2;
    gate->calls = 0;
    const bool answered = call().has_value();
    return std::pair(answered, gate->calls);
  };
  const auto read = [&] { return client.get_raw("/version"); };
  const auto write = [&] { return client.create(kPods, "default", "{}"); };
  EXPECT_EQ(calls(read), std::pair(true, 3));
  EXPECT_EQ(calls(write), std::pair(false, 1));
  gate->busy.headers.clear();
  EXPECT_EQ(calls(read), std::pair(false, 1));
}

TEST_F(Tokens, ClientComesBackToARefusedWatchWhenTold) {
  Config config;
  config.token = "t";
  const auto gate = std::make_shared<Gatekeeper>();
  gate->wanted = "t";
  ClientOptions options;
  options.throttle_retries = 4;
  Client client(gate, gate, make_token_source(config, clock), options);
  const auto watch = [&](const std::stop_token& stop) {
    gate->calls = 0;
    return client.watch(kPods, "default", {}, [](const WatchEvent&) { return true; }, stop);
  };
  gate->throttle = 2;
  EXPECT_TRUE(watch({}));
  EXPECT_EQ(gate->calls, 3);
  gate->throttle = 100;
  EXPECT_EQ(watch({}).error().code, Code::kExhausted);
  EXPECT_EQ(gate->calls, 5);
  gate->busy.headers.front().value = "3600";
  std::stop_source stop;
  stop.request_stop();
  EXPECT_FALSE(watch(stop.get_token()));  // at once
  EXPECT_EQ(gate->calls, 1);
}

}  // namespace
}  // namespace paceline::kube
