// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <fstream>
#include <mutex>
#include <optional>
#include <sstream>
#include <utility>

#include "common/base/timestamp.hpp"
#include "common/kube/api/json_reader.hpp"
#include "common/kube/connect/config.hpp"
#include "common/kube/connect/run_plugin.hpp"

namespace paceline::kube {
namespace {

constexpr std::chrono::seconds kLookAgain{1};
constexpr std::chrono::seconds kBeforeExpiry{30};
constexpr std::chrono::seconds kPluginTimeout{30};

class FixedToken final : public TokenSource {
 public:
  explicit FixedToken(std::string token) : token_(std::move(token)) {}
  Result<std::string> token() override { return token_; }
  bool refused() override { return false; }

 private:
  const std::string token_;
};

/// The kubelet replaces projected service-account tokens on disk about once an hour.
class FileToken final : public TokenSource {
 public:
  FileToken(std::string path, const Clock& clock) : path_(std::move(path)), clock_(clock) {}

  Result<std::string> token() override {
    const std::lock_guard lock(mutex_);
    const SteadyTime now = clock_.steady();
    if (read_at_ && now - *read_at_ < kLookAgain) return token_;
    std::ifstream file(path_, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    std::string fresh = std::move(text).str();
    while (!fresh.empty() && (fresh.back() == '\n' || fresh.back() == '\r' || fresh.back() == ' '))
      fresh.pop_back();
    if (fresh.empty()) {
      // The file is being replaced: the old token is still valid for a while.
      if (!token_.empty()) return token_;
      return fail(Code::kUnauthorized, Origin::kConfig,
                  "token file " + path_ + " is missing or empty", true);
    }
    read_at_ = now;
    token_ = std::move(fresh);
    return token_;
  }
  bool refused() override {
    const std::lock_guard lock(mutex_);
    const std::string before = token_;
    read_at_.reset();
    std::ifstream file(path_);
    std::string fresh;
    std::getline(file, fresh);
    return !fresh.empty() && fresh != before;
  }

 private:
  const std::string path_;
  const Clock& clock_;
  std::mutex mutex_;
  std::string token_;
  std::optional<SteadyTime> read_at_;
};

/// A plugin returns a bearer token, a client certificate, or both.
class PluginCredential final : public TokenSource {
 public:
  PluginCredential(ExecPlugin plugin, std::shared_ptr<http::RenewableCertificate> certificate,
                   const Clock& clock)
      : plugin_(std::move(plugin)), certificate_(std::move(certificate)), clock_(clock) {}

  Result<std::string> token() override {
    const std::lock_guard lock(mutex_);  // one run serves all waiting callers
    if (known_ && (!expires_ || clock_.wall() + kBeforeExpiry < *expires_)) return token_;
    auto printed = run_plugin(plugin_, kPluginTimeout);
    if (!printed) return std::unexpected(printed.error());
    const auto credential = parse(*printed);
    if (!credential) return wrong("printed no JSON");
    const std::string_view token = text(at(*credential, "status", "token"));
    const std::string_view certificate = text(at(*credential, "status", "clientCertificateData"));
    const std::string_view key = text(at(*credential, "status", "clientKeyData"));
    if (certificate.empty() != key.empty())
      return wrong(
          "printed one of status.clientCertificateData and status.clientKeyData, which go "
          "together");
    if (token.empty() && certificate.empty())
      return wrong("printed no ExecCredential with status.token or status.clientCertificateData");
    if (!certificate.empty() && !certificate_)
      return wrong("printed a client certificate, and this connection takes none");
    if (!certificate.empty()) certificate_->renew(std::string(certificate), std::string(key));
    token_ = token;
    known_ = true;
    expires_.reset();
    if (const auto expiry = parse_time(text(at(*credential, "status", "expirationTimestamp"))))
      expires_ = *expiry;
    return token_;
  }
  bool refused() override {
    const std::lock_guard lock(mutex_);
    known_ = false;
    return true;
  }

 private:
  std::unexpected<Error> wrong(const char* what) const {
    return fail(Code::kUnauthorized, Origin::kConfig,
                "credential plugin \"" + plugin_.command + "\" " + what);
  }

  const ExecPlugin plugin_;
  const std::shared_ptr<http::RenewableCertificate> certificate_;
  const Clock& clock_;
  std::mutex mutex_;
  bool known_ = false;
  std::string token_;
  std::optional<WallTime> expires_;
};

}  // namespace

std::shared_ptr<TokenSource> make_token_source(const Config& config, const Clock& clock) {
  if (!config.token_file.empty()) return std::make_shared<FileToken>(config.token_file, clock);
  if (!config.exec.command.empty())
    return std::make_shared<PluginCredential>(config.exec, config.endpoint.renewable, clock);
  return std::make_shared<FixedToken>(config.token);
}

}  // namespace paceline::kube
