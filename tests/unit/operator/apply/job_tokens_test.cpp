// SPDX-License-Identifier: Apache-2.0
// Tokens of jobs, which the operator derives and never reads.
#include "operator/job_tokens.hpp"

#include <gtest/gtest.h>

#include "common/base/base64.hpp"
#include "tests/unit/operator/controller_bench.hpp"

namespace paceline::apply {
namespace {

using nlohmann::json;

constexpr const char* kUid = "6e1f8a5c-0000-4000-8000-000000000001";

class JobTokensTest : public testing::Test {
 protected:
  JobTokensTest() : cluster(clock), api(kube::make_fake_api(cluster)) {}

  JobTokens tokens() {
    return {*api, "paceline-system",
            [this] { return std::string(15, '\0') + std::to_string(++draws); }};
  }

  void store_key(const std::string& key) {
    const json secret = {
        {"apiVersion", "v1"},
        {"kind", "Secret"},
        {"metadata", {{"name", kTokenKeySecret}, {"namespace", "paceline-system"}}},
        {"data", {{"key", encode_base64(key)}}}};
    ASSERT_TRUE(api->create(kube::kSecrets, "paceline-system", secret.dump()));
  }

  int draws = 0;
  ManualClock clock;
  kube::FakeCluster cluster;
  std::shared_ptr<kube::Api> api;
};

TEST_F(JobTokensTest, AreHmacSha256) {
  store_key(std::string(20, '\xaa'));  // RFC 4231, test case 3
  EXPECT_EQ(tokens().of(std::string(50, '\xdd')).value(), "773ea91e36800e46854db8ebd09181a7");
}

TEST_F(JobTokensTest, AreTheSameAfterARestartAndInAnotherReplica) {
  const auto first = tokens().of(kUid);
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_EQ(first->size(), 32U);
  EXPECT_EQ(tokens().of(kUid).value_or(""), *first);
  EXPECT_NE(tokens().of("another").value_or(*first), *first);
  EXPECT_EQ(cluster.objects(kube::kSecrets).size(), 1U);
  EXPECT_EQ(draws, 2) << "256 bits, once";
}

TEST_F(JobTokensTest, AreOfTheReplicaThatCreatedTheKeyFirst) {
  cluster.set_faults(
      [&, first = true](const http::Request& request) mutable -> std::optional<kube::Fault> {
        if (request.method != "GET" || !std::exchange(first, false)) return std::nullopt;
        return kube::Fault{.status = 404};
      });
  JobTokens slow = tokens();
  store_key(std::string(20, 'k'));
  const auto token = slow.of(kUid);
  cluster.set_faults({});
  ASSERT_TRUE(token) << token.error().message;
  EXPECT_EQ(*token, tokens().of(kUid).value_or(""));
}

TEST_F(JobTokensTest, NameTheSecretThatHoldsNoKey) {
  store_key("short");
  const auto token = tokens().of(kUid);
  ASSERT_FALSE(token);
  EXPECT_NE(token.error().message.find("Secret paceline-operator-key: data.key"), std::string::npos)
      << token.error().message;
}

TEST_F(JobTokensTest, AreAskedForAgainAfterAFailure) {
  cluster.set_faults([](const http::Request&) { return kube::Fault{.status = 500}; });
  JobTokens all = tokens();
  EXPECT_FALSE(all.of(kUid));
  cluster.set_faults({});
  EXPECT_TRUE(all.of(kUid));
}

TEST(JobSecrets, AreNeverRead) {
  ControllerBench bench;
  bench.summary = R"({"version": 1})";
  std::vector<std::string> reads;
  bench.cluster().set_faults([&](const http::Request& request) -> std::optional<kube::Fault> {
    if (request.method == "GET" && request.target.find("/secrets") != std::string::npos)
      reads.push_back(request.target);
    return std::nullopt;
  });
  bench.add_node("n0", 2);
  bench.add_job("j");
  bench.settle();
  bench.restart_operator();
  bench.settle();
  ASSERT_TRUE(bench.cluster().erase(kube::kPods, "default", "j-w-1-0"));
  bench.settle();
  EXPECT_EQ(bench.job("j")["status"]["phase"], "Running");
  EXPECT_TRUE(reads.empty()) << reads.front();
}

TEST(JobSecrets, HaveANameThatNoOtherSecretHasByChance) {
  ControllerBench bench;
  bench.add_node("n0", 2);
  bench.create(kube::kSecrets, "default", {{"metadata", {{"name", "j-token"}}}});
  bench.add_job("j");
  bench.settle();
  const std::string uid = bench.job("j")["metadata"]["uid"];
  const std::string name = "j-token-" + uid.substr(uid.size() - 8);
  EXPECT_NE(bench.pods("j").front().dump().find("\"" + name + "\""), std::string::npos);
  EXPECT_EQ(bench.job("j")["status"]["phase"], "Running");
}

}  // namespace
}  // namespace paceline::apply
