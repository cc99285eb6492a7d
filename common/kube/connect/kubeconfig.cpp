// SPDX-License-Identifier: Apache-2.0
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/base64.hpp"
#include "common/kube/connect/config.hpp"

namespace paceline::kube {
namespace {

struct File {
  std::string path;
  YAML::Node root;
};

/// An entry of a list, such as a cluster, and the file that its relative paths belong to.
struct Entry {
  YAML::Node node;
  std::string path;
};

/// Reads kubeconfigs as one. Of entries with one name, that of the first file counts, as for
/// kubectl. Every error names the file and the field.
class Reader {
 public:
  explicit Reader(std::vector<File> files) : files_(std::move(files)) {}

  Result<Config> read(std::string context_name) const {
    for (const File& file : files_) {
      if (context_name.empty()) context_name = text(file.root["current-context"]);
    }
    if (context_name.empty()) return wrong(paths(), "current-context is not set; name a context");
    const auto context = named("contexts", "context", context_name);
    if (!context) return std::unexpected(context.error());
    const YAML::Node& chosen = context->node;
    const auto cluster = named("clusters", "cluster", text(chosen["cluster"]));
    if (!cluster) return std::unexpected(cluster.error());
    Config config;
    if (const std::string ns = text(chosen["namespace"]); !ns.empty()) config.ns = ns;
    if (auto read = read_cluster(*cluster, config); !read) return std::unexpected(read.error());
    if (const std::string user = text(chosen["user"]); !user.empty()) {
      const auto found = named("users", "user", user);
      if (!found) return std::unexpected(found.error());
      if (auto read = read_user(*found, config); !read) return std::unexpected(read.error());
    }
    return config;
  }

  /// As $KUBECONFIG names them.
  std::string paths() const {
    std::string all;
    for (const File& file : files_) all += (all.empty() ? "" : ":") + file.path;
    return all;
  }

  static std::unexpected<Error> wrong(const std::string& path, const std::string& what) {
    return fail(Code::kInvalid, Origin::kConfig, path + ": " + what);
  }

 private:
  static std::string text(const YAML::Node& node) {
    return node && node.IsScalar() ? node.Scalar() : std::string();
  }

  Result<Entry> named(const char* list, const char* kind, const std::string& name) const {
    for (const File& file : files_) {
      const YAML::Node entries = file.root[list];
      if (!entries || !entries.IsSequence()) continue;
      for (const YAML::Node& entry : entries) {
        if (entry.IsMap() && text(entry["name"]) == name && entry[kind].IsMap())
          return Entry{entry[kind], file.path};
      }
    }
    return wrong(paths(), std::string(list) + " has no entry named \"" + name + "\"");
  }

  static std::string resolve(const Entry& entry, const std::string& file) {
    if (file.empty()) return file;
    return (std::filesystem::path(entry.path).parent_path() / file).string();
  }

  static Result<std::string> data(const Entry& entry, const char* field) {
    const std::string encoded = text(entry.node[field]);
    auto decoded = decode_base64(encoded);
    if (!decoded) return wrong(entry.path, std::string(field) + " is not base64");
    return std::move(*decoded);
  }

  static Status read_cluster(const Entry& entry, Config& config) {
    const YAML::Node& cluster = entry.node;
    auto url = http::parse_server_url(text(cluster["server"]));
    if (!url) return wrong(entry.path, "server: " + url.error().message);
    config.endpoint = std::move(url->endpoint);
    config.prefix = std::move(url->prefix);
    if (text(cluster["insecure-skip-tls-verify"]) == "true") {
      return wrong(
          entry.path,
          "insecure-skip-tls-verify: true is not supported; give certificate-authority instead");
    }
    if (!text(cluster["proxy-url"]).empty())
      return wrong(entry.path, "proxy-url is not supported; remove it");
    config.endpoint.server_name = text(cluster["tls-server-name"]);
    config.endpoint.ca_file = resolve(entry, text(cluster["certificate-authority"]));
    auto ca = data(entry, "certificate-authority-data");
    if (!ca) return std::unexpected(ca.error());
    config.endpoint.ca_data = std::move(*ca);
    return {};
  }

  static Status read_user(const Entry& entry, Config& config) {
    const YAML::Node& user = entry.node;
    for (const char* field : {"auth-provider", "username"}) {
      if (user[field])
        return wrong(entry.path,
                     std::string("users: ") + field +
                         " is not supported; use a token, a client certificate or exec");
    }
    config.endpoint.cert_file = resolve(entry, text(user["client-certificate"]));
    config.endpoint.key_file = resolve(entry, text(user["client-key"]));
    auto certificate = data(entry, "client-certificate-data");
    if (!certificate) return std::unexpected(certificate.error());
    config.endpoint.cert_data = std::move(*certificate);
    auto key = data(entry, "client-key-data");
    if (!key) return std::unexpected(key.error());
    config.endpoint.key_data = std::move(*key);
    config.token = text(user["token"]);
    config.token_file = resolve(entry, text(user["tokenFile"]));
    return read_exec(entry, config);
  }

  static Status read_exec(const Entry& entry, Config& config) {
    const YAML::Node exec = entry.node["exec"];
    if (!exec || !exec.IsMap()) return {};
    config.exec.api_version = text(exec["apiVersion"]);
    config.exec.command = text(exec["command"]);
    if (config.exec.command.empty()) return wrong(entry.path, "exec.command is missing");
    config.endpoint.renewable = std::make_shared<http::RenewableCertificate>();
    if (config.exec.api_version != "client.authentication.k8s.io/v1" &&
        config.exec.api_version != "client.authentication.k8s.io/v1beta1") {
      return wrong(entry.path, "exec.apiVersion \"" + config.exec.api_version +
                                   "\" is not supported; write client.authentication.k8s.io/v1");
    }
    // A path with a slash is relative to the kubeconfig's folder; a bare name is looked up in PATH.
    if (config.exec.command.find('/') != std::string::npos)
      config.exec.command = resolve(entry, config.exec.command);
    if (const YAML::Node args = exec["args"]; args && args.IsSequence()) {
      for (const YAML::Node& arg : args) config.exec.args.push_back(text(arg));
    }
    if (const YAML::Node env = exec["env"]; env && env.IsSequence()) {
      for (const YAML::Node& variable : env)
        config.exec.env[text(variable["name"])] = text(variable["value"]);
    }
    return {};
  }

  const std::vector<File> files_;
};

Result<File> read_file(const std::string& path) {
  std::error_code unknown;
  // Reading a folder throws what is no exception of YAML.
  if (std::filesystem::is_directory(path, unknown))
    return Reader::wrong(path, "is a folder; name a kubeconfig");
  try {
    File file{path, YAML::LoadFile(path)};
    if (!file.root.IsMap() && !file.root.IsNull())
      return Reader::wrong(path, "is not a kubeconfig: the top is not a map");
    return file;
  } catch (const YAML::BadFile&) {
    return fail(Code::kNotFound, Origin::kConfig,
                path + ": cannot be read; name an existing kubeconfig");
  } catch (const YAML::Exception& error) {
    return Reader::wrong(path, error.what());
  }
}

Result<Config> read_config(std::vector<File> files, const std::string& context) {
  const Reader reader(std::move(files));
  try {
    return reader.read(context);
  } catch (const YAML::Exception& error) {
    return Reader::wrong(reader.paths(), error.what());
  }
}

}  // namespace

Result<Config> load_kubeconfig(const std::string& path, const std::string& context) {
  auto file = read_file(path);
  if (!file) return std::unexpected(file.error());
  std::vector<File> files;
  files.push_back(*std::move(file));
  return read_config(std::move(files), context);
}

Result<Config> load_kubeconfigs(const std::string& paths, const std::string& context) {
  std::vector<File> files;
  for (std::size_t at = 0; at <= paths.size();) {
    const auto end = std::min(paths.find(':', at), paths.size());
    const std::string path = paths.substr(at, end - at);
    at = end + 1;
    if (path.empty()) continue;
    auto file = read_file(path);
    // As for kubectl, a file that does not exist counts as empty.
    std::error_code unknown;
    if (!file && !std::filesystem::exists(path, unknown)) continue;
    if (!file) return std::unexpected(file.error());
    files.push_back(*std::move(file));
  }
  if (files.empty())
    return fail(Code::kNotFound, Origin::kConfig,
                "KUBECONFIG=\"" + paths + "\": cannot be read; name an existing kubeconfig");
  return read_config(std::move(files), context);
}

}  // namespace paceline::kube
