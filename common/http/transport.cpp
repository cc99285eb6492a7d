// SPDX-License-Identifier: Apache-2.0
#include "common/http/transport.hpp"

#include <algorithm>
#include <cctype>
#include <utility>

namespace paceline::http {
namespace {

bool same_name(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) ==
           std::tolower(static_cast<unsigned char>(y));
  });
}

std::string_view find(const std::vector<Header>& headers, std::string_view name) {
  for (const Header& header : headers) {
    if (same_name(header.name, name)) return header.value;
  }
  return {};
}

}  // namespace

std::string_view Request::header(std::string_view name) const { return find(headers, name); }
std::string_view Response::header(std::string_view name) const { return find(headers, name); }

RenewableCertificate::Pem RenewableCertificate::current() const {
  const std::lock_guard lock(mutex_);
  return pem_;
}

void RenewableCertificate::renew(std::string certificate, std::string key) {
  const std::lock_guard lock(mutex_);
  pem_ = {std::move(certificate), std::move(key), pem_.generation + 1};
}

Result<ServerUrl> parse_server_url(std::string_view url) {
  const auto wrong = [&](const char* what) {
    return fail(Code::kInvalid, Origin::kConfig,
                "server URL \"" + std::string(url.substr(0, 256)) + "\" " + what +
                    "; write for example https://10.0.0.1:6443");
  };
  ServerUrl result;
  std::string_view rest = url;
  if (rest.starts_with("https://")) {
    result.endpoint.tls = true;
    rest.remove_prefix(8);
  } else if (rest.starts_with("http://")) {
    rest.remove_prefix(7);
  } else {
    return wrong("does not begin with https:// or http://");
  }
  const auto slash = rest.find('/');
  std::string_view authority = rest.substr(0, slash);
  if (slash != std::string_view::npos) {
    std::string_view prefix = rest.substr(slash);
    while (prefix.ends_with('/')) prefix.remove_suffix(1);
    result.prefix = prefix;
  }
  if (authority.find('@') != std::string_view::npos) return wrong("holds credentials");
  std::string_view port;
  if (authority.starts_with('[')) {
    const auto close = authority.find(']');
    if (close == std::string_view::npos) return wrong("has an unclosed [");
    result.endpoint.host = authority.substr(1, close - 1);
    if (close + 1 < authority.size()) {
      if (authority[close + 1] != ':') return wrong("has text after ]");
      port = authority.substr(close + 2);
    }
  } else {
    const auto colon = authority.find(':');
    result.endpoint.host = authority.substr(0, colon);
    if (colon != std::string_view::npos) port = authority.substr(colon + 1);
  }
  if (result.endpoint.host.empty()) return wrong("has no host");
  if (!std::ranges::all_of(port, [](char c) { return c >= '0' && c <= '9'; }) || port.size() > 5) {
    return wrong("has a port that is not a number");
  }
  result.endpoint.port = port.empty() ? (result.endpoint.tls ? "443" : "80") : std::string(port);
  return result;
}

std::string escape(std::string_view text) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string escaped;
  escaped.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || c == '-' || c == '_' || c == '.' || c == '~') {
      escaped += c;
    } else {
      escaped += '%';
      escaped += kHex[byte >> 4];
      escaped += kHex[byte & 15];
    }
  }
  return escaped;
}

}  // namespace paceline::http
