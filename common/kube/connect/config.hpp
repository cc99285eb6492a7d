// SPDX-License-Identifier: Apache-2.0
// The address of the API server and our credentials: from a kubeconfig file or from inside a pod.
//
// A Config is a value. make_token_source returns a source that reads its file again when it changes
// on disk (checked at most once a second), and runs an exec plugin again before its token expires.
// Failures name file, field and remedy. Certificates are always verified: insecure-skip-tls-verify
// is refused.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.hpp"
#include "common/base/error.hpp"
#include "common/http/transport.hpp"
#include "common/kube/client/token_source.hpp"

namespace paceline::kube {

struct ExecPlugin {
  std::string api_version;
  std::string command;
  std::vector<std::string> args;
  std::map<std::string, std::string> env;
};

struct Config {
  http::Endpoint endpoint;
  std::string prefix;  // path before /api
  std::string ns = "default";
  std::string token;
  std::string token_file;
  // used if its command is not empty; its client certificates go to endpoint.renewable
  ExecPlugin exec;
};

/// `context` empty: current-context. Relative paths are relative to the file's folder.
Result<Config> load_kubeconfig(const std::string& path, const std::string& context = {});
/// Kubeconfigs with colons between, merged as kubectl does. A file that does not exist is left out.
Result<Config> load_kubeconfigs(const std::string& paths, const std::string& context = {});
/// The service account of this pod.
Result<Config> load_in_cluster(const std::string& root = "/");
/// `path` if given, else $KUBECONFIG, else in-cluster, else ~/.kube/config.
Result<Config> load_default(const std::string& path = {}, const std::string& context = {});

std::shared_ptr<TokenSource> make_token_source(const Config& config, const Clock& clock);

}  // namespace paceline::kube
