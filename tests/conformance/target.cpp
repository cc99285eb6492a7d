// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/target.hpp"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string_view>

#include "common/kube/connect/config.hpp"
#include "common/kube/connect/connect.hpp"

namespace paceline::kube {

void Conformance::SetUp() {
  const std::string_view target = GetParam();
  if (target.starts_with("real")) {
    const char* path = std::getenv("PACELINE_TEST_KUBECONFIG");
    if (path == nullptr) GTEST_SKIP() << "PACELINE_TEST_KUBECONFIG is not set";
    const auto config = load_kubeconfig(path);
    ASSERT_TRUE(config) << to_string(config.error());
    auto client = make_client(*config, clock_, {.prefer_cpprest = target == "real_cpprest"});
    ASSERT_TRUE(client) << to_string(client.error());
    api_ = *client;
  } else {
    cluster_ = std::make_unique<FakeCluster>(clock_);
    if (target == "memory") {
      api_ = make_fake_api(*cluster_);
    } else {
      auto server = FakeServer::start(*cluster_);
      ASSERT_TRUE(server) << to_string(server.error());
      server_ = std::move(*server);
      Config config;
      config.endpoint.host = "127.0.0.1";
      config.endpoint.port = std::to_string(server_->port());
      api_ = *make_client(config, clock_, {.prefer_cpprest = target == "socket_cpprest"});
    }
  }
  static std::atomic<int> next{0};
  ns_ = "conformance-" + std::to_string(::getpid()) + "-" + std::to_string(next++);
  const auto made = api_->create(
      kNamespaces, "",
      Document{{"apiVersion", "v1"}, {"kind", "Namespace"}, {"metadata", {{"name", ns_}}}}.dump());
  ASSERT_TRUE(made) << to_string(made.error());
  // Without a controller manager nobody makes the account that pods need.
  const Document account = {
      {"apiVersion", "v1"}, {"kind", "ServiceAccount"}, {"metadata", {{"name", "default"}}}};
  const auto made_account = api_->create(kServiceAccounts, ns_, account.dump());
  ASSERT_TRUE(made_account || made_account.error().code == Code::kAlreadyExists)
      << to_string(made_account.error());
}

void Conformance::TearDown() {
  if (api_ && !ns_.empty()) (void)api_->remove(kNamespaces, "", ns_);
  api_.reset();
  server_.reset();
  cluster_.reset();
}

Document Conformance::config_map(const std::string& name, const std::string& value) const {
  return {{"apiVersion", "v1"},
          {"kind", "ConfigMap"},
          {"metadata", {{"name", name}, {"namespace", ns_}, {"labels", {{"app", name}}}}},
          {"data", {{"key", value}}}};
}

Document Conformance::pod(const std::string& name) const {
  return {{"apiVersion", "v1"},
          {"kind", "Pod"},
          {"metadata", {{"name", name}, {"namespace", ns_}}},
          {"spec",
           {{"restartPolicy", "Never"},
            {"schedulingGates", Document::array({{{"name", "paceline.dev/gang"}}})},
            {"containers",
             Document::array({{{"name", "trainer"}, {"image", "none"}, {"command", {"true"}}}})}}}};
}

Document Conformance::create(const Resource& resource, const Document& object,
                             const WriteOptions& options) {
  const auto created = api_->create(resource, ns_, object.dump(), options);
  EXPECT_TRUE(created) << to_string(created.error());
  return created ? Document::parse(*created) : Document();
}

}  // namespace paceline::kube
