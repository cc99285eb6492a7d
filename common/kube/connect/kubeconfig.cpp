// SPDX-License-Identifier: Apache-2.0
#include <yaml-cpp/yaml.h>

#include <filesystem>
#include <memory>
#include <utility>

#include "common/base/base64.hpp"
#include "common/kube/connect/config.hpp"

namespace paceline::kube {
namespace {

/// Reads one kubeconfig. Every error names the file and the field.
class Reader {
 public:
  Reader(std::string path, const YAML::Node& root) : path_(std::move(path)), root_(root) {}

  Result<Config> read(std::string context_name) {
    if (context_name.empty()) context_name = text(root_["current-context"]);
    if (context_name.empty()) return wrong("current-context is not set; name a context");
    const auto context = named("contexts", "context", context_name);
    if (!context) return std::unexpected(context.error());
    const auto cluster = named("clusters", "cluster", text((*context)["cluster"]));
    if (!cluster) return std::unexpected(cluster.error());
    Config config;
    if (const std::string ns = text((*context)["namespace"]); !ns.empty()) config.ns = ns;
    if (auto read = read_cluster(*cluster, config); !read) return std::unexpected(read.error());
    if (const std::string user = text((*context)["user"]); !user.empty()) {
      const auto found = named("users", "user", user);
      if (!found) return std::unexpected(found.error());
      if (auto read = read_user(*found, config); !read) return std::unexpected(read.error());
    }
    return config;
  }

  std::unexpected<Error> wrong(const std::string& what) const {
    return fail(Code::kInvalid, Origin::kConfig, path_ + ": " + what);
  }

 private:
  static std::string text(const YAML::Node& node) {
    return node && node.IsScalar() ? node.Scalar() : std::string();
  }

  Result<YAML::Node> named(const char* list, const char* kind, const std::string& name) const {
    const YAML::Node entries = root_[list];
    if (entries && entries.IsSequence()) {
      for (const YAML::Node& entry : entries) {
        if (entry.IsMap() && text(entry["name"]) == name && entry[kind].IsMap()) return entry[kind];
      }
    }
    return wrong(std::string(list) + " has no entry named \"" + name + "\"");
  }

  std::string resolve(const std::string& file) const {
    if (file.empty()) return file;
    return (std::filesystem::path(path_).parent_path() / file).string();
  }

  Result<std::string> data(const YAML::Node& node, const char* field) const {
    const std::string encoded = text(node[field]);
    auto decoded = decode_base64(encoded);
    if (!decoded) return wrong(std::string(field) + " is not base64");
    return std::move(*decoded);
  }

  Status read_cluster(const YAML::Node& cluster, Config& config) const {
    auto url = http::parse_server_url(text(cluster["server"]));
    if (!url) return wrong("server: " + url.error().message);
    config.endpoint = std::move(url->endpoint);
    config.prefix = std::move(url->prefix);
    if (text(cluster["insecure-skip-tls-verify"]) == "true") {
      return wrong(
          "insecure-skip-tls-verify: true is not supported; give certificate-authority instead");
    }
    if (!text(cluster["proxy-url"]).empty()) return wrong("proxy-url is not supported; remove it");
    config.endpoint.server_name = text(cluster["tls-server-name"]);
    config.endpoint.ca_file = resolve(text(cluster["certificate-authority"]));
    auto ca = data(cluster, "certificate-authority-data");
    if (!ca) return std::unexpected(ca.error());
    config.endpoint.ca_data = std::move(*ca);
    return {};
  }

  Status read_user(const YAML::Node& user, Config& config) const {
    for (const char* field : {"auth-provider", "username"}) {
      if (user[field])
        return wrong(std::string("users: ") + field +
                     " is not supported; use a token, a client certificate or exec");
    }
    config.endpoint.cert_file = resolve(text(user["client-certificate"]));
    config.endpoint.key_file = resolve(text(user["client-key"]));
    auto certificate = data(user, "client-certificate-data");
    if (!certificate) return std::unexpected(certificate.error());
    config.endpoint.cert_data = std::move(*certificate);
    auto key = data(user, "client-key-data");
    if (!key) return std::unexpected(key.error());
    config.endpoint.key_data = std::move(*key);
    config.token = text(user["token"]);
    config.token_file = resolve(text(user["tokenFile"]));
    return read_exec(user["exec"], config);
  }

  Status read_exec(const YAML::Node& exec, Config& config) const {
    if (!exec || !exec.IsMap()) return {};
    config.exec.api_version = text(exec["apiVersion"]);
    config.exec.command = text(exec["command"]);
    if (config.exec.command.empty()) return wrong("exec.command is missing");
    config.endpoint.renewable = std::make_shared<http::RenewableCertificate>();
    if (config.exec.api_version != "client.authentication.k8s.io/v1" &&
        config.exec.api_version != "client.authentication.k8s.io/v1beta1") {
      return wrong("exec.apiVersion \"" + config.exec.api_version +
                   "\" is not supported; write client.authentication.k8s.io/v1");
    }
    // A path with a slash is relative to the kubeconfig's folder; a bare name is looked up in PATH.
    if (config.exec.command.find('/') != std::string::npos)
      config.exec.command = resolve(config.exec.command);
    if (const YAML::Node args = exec["args"]; args && args.IsSequence()) {
      for (const YAML::Node& arg : args) config.exec.args.push_back(text(arg));
    }
    if (const YAML::Node env = exec["env"]; env && env.IsSequence()) {
      for (const YAML::Node& entry : env)
        config.exec.env[text(entry["name"])] = text(entry["value"]);
    }
    return {};
  }

  const std::string path_;
  const YAML::Node root_;
};

}  // namespace

Result<Config> load_kubeconfig(const std::string& path, const std::string& context) {
  try {
    const YAML::Node root = YAML::LoadFile(path);
    Reader reader(path, root);
    if (!root.IsMap()) return reader.wrong("is not a kubeconfig: the top is not a map");
    return reader.read(context);
  } catch (const YAML::BadFile&) {
    return fail(Code::kNotFound, Origin::kConfig,
                path + ": cannot be read; name an existing kubeconfig");
  } catch (const YAML::Exception& error) {
    return fail(Code::kInvalid, Origin::kConfig, path + ": " + error.what());
  }
}

}  // namespace paceline::kube
