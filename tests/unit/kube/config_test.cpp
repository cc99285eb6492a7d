// SPDX-License-Identifier: Apache-2.0
#include "common/kube/connect/config.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace paceline::kube {
namespace {

class Kubeconfig : public testing::Test {
 protected:
  Kubeconfig() : folder(testing::TempDir() + "kubeconfig-" + std::to_string(::getpid())) {
    std::filesystem::create_directories(folder);
  }
  ~Kubeconfig() override { std::filesystem::remove_all(folder); }
  Result<Config> load(const std::string& text, const std::string& context = {}) {
    std::ofstream(folder + "/config") << text;
    return load_kubeconfig(folder + "/config", context);
  }
  std::string folder;
};

constexpr const char* kGood = R"(
current-context: one
contexts:
- {name: one, context: {cluster: c, user: u, namespace: team}}
- {name: two, context: {cluster: c, user: exec}}
clusters:
- {name: c, cluster: {server: "https://10.0.0.1:6443/p", certificate-authority: pki/ca.crt, tls-server-name: api}}
users:
- {name: u, user: {client-certificate-data: aGVsbG8=, client-key: /abs/key, token: secret}}
- {name: exec, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: ./plugin, args: [a, b], env: [{name: N, value: V}]}}}
)";

TEST_F(Kubeconfig, ReadsTheCurrentContext) {
  const auto config = load(kGood);
  ASSERT_TRUE(config) << to_string(config.error());
  EXPECT_EQ(config->endpoint.host, "10.0.0.1");
  EXPECT_EQ(config->endpoint.port, "6443");
  EXPECT_EQ(config->prefix, "/p");
  EXPECT_EQ(config->ns, "team");
  EXPECT_EQ(config->endpoint.server_name, "api");
  EXPECT_EQ(config->endpoint.ca_file, folder + "/pki/ca.crt");
  EXPECT_EQ(config->endpoint.cert_data, "hello");
  EXPECT_EQ(config->endpoint.key_file, "/abs/key");
  EXPECT_EQ(config->token, "secret");
}

TEST_F(Kubeconfig, ReadsAnotherContextWithAPlugin) {
  const auto config = load(kGood, "two");
  ASSERT_TRUE(config) << to_string(config.error());
  EXPECT_EQ(config->exec.command, folder + "/./plugin");
  EXPECT_EQ(config->exec.args, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(config->exec.env.at("N"), "V");
}

TEST_F(Kubeconfig, RefusalNamesTheFieldThatIsWrong) {
  const auto broken = [&](const std::string& from, const std::string& to) {
    std::string text = kGood;
    text.replace(text.find(from), from.size(), to);
    const auto config = load(text);
    EXPECT_FALSE(config) << to;
    return config ? std::string() : config.error().message;
  };
  EXPECT_NE(broken("current-context: one", "current-context: three").find("\"three\""),
            std::string::npos);
  EXPECT_NE(broken("https://10.0.0.1", "10.0.0.1").find("server"), std::string::npos);
  EXPECT_NE(broken("aGVsbG8=", "'?'").find("client-certificate-data"), std::string::npos);
  EXPECT_NE(broken("tls-server-name: api", "insecure-skip-tls-verify: true")
                .find("certificate-authority"),
            std::string::npos);
  EXPECT_NE(broken("current-context: one", "current-context: [").find("config"), std::string::npos);
}

TEST_F(Kubeconfig, SeveralFilesAreMergedAndTheFirstCounts) {
  std::filesystem::create_directories(folder + "/more");
  std::ofstream(folder + "/one")
      << "current-context: mine\n"
         "contexts:\n"
         "- {name: mine, context: {cluster: c, user: u, namespace: ml}}\n"
         "users:\n"
         "- {name: u, user: {token: first}}\n";
  std::ofstream(folder + "/more/two") << kGood;
  const auto load_all = [&](const std::string& paths, const std::string& context = {}) {
    return load_kubeconfigs(paths, context);
  };
  const std::string both = folder + "/one:" + folder + "/none::" + folder + "/more/two:";
  const auto config = load_all(both);
  ASSERT_TRUE(config) << to_string(config.error());
  EXPECT_EQ(config->ns, "ml");
  EXPECT_EQ(config->token, "first");
  EXPECT_EQ(config->endpoint.host, "10.0.0.1");
  // A relative path belongs to the file that it stands in.
  EXPECT_EQ(config->endpoint.ca_file, folder + "/more/pki/ca.crt");
  ASSERT_TRUE(load_all(both, "two"));
  const auto unknown = load_all(both, "three");
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("/more/two: contexts has no entry named \"three\""),
            std::string::npos);
  const auto none = load_all(folder + "/none:" + folder + "/nowhere");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kNotFound);
}

TEST_F(Kubeconfig, AFolderIsRefusedByName) {
  for (const auto& config : {load_kubeconfig(folder), load_kubeconfigs(folder)}) {
    ASSERT_FALSE(config);
    EXPECT_NE(config.error().message.find(folder + ": is a folder"), std::string::npos);
  }
}

TEST_F(Kubeconfig, AbsentFileSaysWhich) {
  const auto config = load_kubeconfig(folder + "/none");
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().code, Code::kNotFound);
  EXPECT_NE(config.error().message.find("/none"), std::string::npos);
}

TEST_F(Kubeconfig, InClusterReadsTheServiceAccount) {
  const std::string account = folder + "/var/run/secrets/kubernetes.io/serviceaccount/";
  std::filesystem::create_directories(account);
  std::ofstream(account + "token") << "t";
  std::ofstream(account + "namespace") << "team";
  ::setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1", 1);
  ::setenv("KUBERNETES_SERVICE_PORT", "443", 1);
  const auto without_ca = load_in_cluster(folder);
  ASSERT_FALSE(without_ca);
  EXPECT_NE(without_ca.error().message.find("ca.crt"), std::string::npos);
  std::ofstream(account + "ca.crt") << "x";
  const auto config = load_in_cluster(folder);
  ::unsetenv("KUBERNETES_SERVICE_HOST");
  ::unsetenv("KUBERNETES_SERVICE_PORT");
  ASSERT_TRUE(config) << to_string(config.error());
  EXPECT_EQ(config->ns, "team");
  EXPECT_EQ(config->token_file, account + "token");
  EXPECT_TRUE(config->endpoint.tls);
  EXPECT_EQ(load_in_cluster(folder).error().code, Code::kNotFound);
}

}  // namespace
}  // namespace paceline::kube
