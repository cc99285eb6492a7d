// SPDX-License-Identifier: Apache-2.0
#include "common/kube/connect/config.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <utility>

namespace paceline::kube {
namespace {

constexpr const char* kServiceAccount = "var/run/secrets/kubernetes.io/serviceaccount/";

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

}  // namespace

Result<Config> load_in_cluster(const std::string& root) {
  const std::string host = variable("KUBERNETES_SERVICE_HOST");
  const std::string port = variable("KUBERNETES_SERVICE_PORT");
  if (host.empty() || port.empty()) {
    return fail(Code::kNotFound, Origin::kConfig,
                "not in a pod: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set; "
                "give a kubeconfig");
  }
  const std::string folder = (root.ends_with('/') ? root : root + "/") + kServiceAccount;
  Config config;
  config.endpoint.tls = true;
  config.endpoint.host = host;
  config.endpoint.port = port;
  config.endpoint.ca_file = folder + "ca.crt";
  config.token_file = folder + "token";
  for (const std::string* file : {&config.endpoint.ca_file, &config.token_file}) {
    if (::access(file->c_str(), R_OK) != 0) {
      return fail_errno(
          "read " + *file + " (does the pod set automountServiceAccountToken: false?)", errno);
    }
  }
  std::ifstream ns(folder + "namespace");
  std::getline(ns, config.ns);
  if (config.ns.empty()) config.ns = "default";
  return config;
}

Result<Config> load_default(const std::string& path, const std::string& context) {
  if (!path.empty()) return load_kubeconfig(path, context);
  if (const std::string files = variable("KUBECONFIG"); !files.empty())
    return load_kubeconfigs(files, context);
  auto in_cluster = load_in_cluster();
  if (in_cluster || in_cluster.error().code != Code::kNotFound) return in_cluster;
  const std::string home = variable("HOME") + "/.kube/config";
  if (::access(home.c_str(), F_OK) == 0) return load_kubeconfig(home, context);
  return fail(Code::kNotFound, Origin::kConfig,
              "no cluster is named: give --kubeconfig, set KUBECONFIG, or write " + home);
}

}  // namespace paceline::kube
